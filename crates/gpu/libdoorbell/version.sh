# Sourced by install.sh and link.sh, with $here: the version, and what programs are linked to, which is the major version, before 1.0
# with the minor one.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/Cargo.toml" | head -n 1)
interface=${version%%.*}
[ "$interface" != 0 ] || interface=${version%.*}

# What the scripts of this folder share: they source it first. DOORBELL names the binary (default: cargo's release build).
here=$(cd "$(dirname "$0")" && pwd)
d=${DOORBELL:-$here/../../target/release/doorbell}
# Whether $parts names it.
want() { case " $parts " in *" $1 "*) ;; *) return 1 ;; esac; }
xids() { dmesg 2>/dev/null | grep -c 'NVRM: Xid'; }
before=$(xids)
# Whether the kernel log has a new Xid, which is shown. A script ends then: its cause comes first.
new_xid() {
  [ "$(xids)" != "$before" ] || return 1
  echo "An Xid in the kernel log:"
  dmesg | grep 'NVRM: Xid' | tail -n 3
}

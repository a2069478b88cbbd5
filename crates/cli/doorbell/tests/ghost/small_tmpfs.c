/* The agent's folder on a small tmpfs, as the /dev/shm of containers: what does not fit is a gap, never a SIGBUS.
   needs: root
   also: busy.c
   try: D=$(mktemp -d); mount -t tmpfs -o size=1m none $D && umount $D
   start of_64_mb: mkdir d; mount -t tmpfs -o size=64m none d; "$@" ./busy 8 2; S=$?; ls d; umount -l d; exit $S
   start of_1_mb: mkdir d; mount -t tmpfs -o size=1m none d; "$@" ./busy 8 2; S=$?; ls d; umount -l d; exit $S
   record: --agent-dir d
   last: --agent-dir d
   run: - */
int main(void) {}

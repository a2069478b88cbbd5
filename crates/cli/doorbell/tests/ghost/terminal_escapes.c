/* Names with control characters and marks of direction: no view prints them raw.
   also: locker.c
   start: N=$'x\e]0;TITLE\a\e[31mRED\b\b\u202e\n'; mv locker "$N"; gcc -w -static terminal_escapes.c -o "s$N"; "$@" sh -c './x*; ./sx*; :' 2>e; S=$?; if grep -qP '\x1b|\x07|\x08|\xe2\x80\xae' e; then echo "raw on the terminal"; fi; exit $S */
int main(void) {}

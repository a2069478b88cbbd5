/* Prints which of SIGTRAP and SIGSEGV were blocked at its start, and which ignored. */
#include <signal.h>
#include <stdio.h>

int main(void) {
    sigset_t blocked;
    struct sigaction trap, segv;
    sigprocmask(SIG_BLOCK, 0, &blocked);
    sigaction(SIGTRAP, 0, &trap);
    sigaction(SIGSEGV, 0, &segv);
    printf("program: blocked SIGTRAP %d SIGSEGV %d\n", sigismember(&blocked, SIGTRAP), sigismember(&blocked, SIGSEGV));
    printf("program: ignored SIGTRAP %d SIGSEGV %d\n", trap.sa_handler == SIG_IGN, segv.sa_handler == SIG_IGN);
    return 0;
}

/* Runs a program under a filter that is stricter than a container engine's: these calls fail with EPERM. Exits with 77 if no filter may be
   installed. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define NO(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
int main(int argc, char **argv)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        NO(SYS_perf_event_open), NO(SYS_ptrace), NO(SYS_pidfd_getfd), NO(SYS_userfaultfd), NO(SYS_pidfd_open), NO(SYS_membarrier),
        NO(SYS_kcmp), NO(SYS_bpf), NO(SYS_io_uring_setup),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = { sizeof f / sizeof *f, f };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
        return 77;
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}

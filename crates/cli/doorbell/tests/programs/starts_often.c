/* starts_often N PROGRAM: starts PROGRAM 2 N times by fork and exec and waits for it, in turns by libc's exec, which is
 * followed, and by an instruction of its own, which is not. For each start a line: how, us from fork to wait, us of CPU. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static double us(struct timeval t) { return t.tv_sec * 1e6 + t.tv_usec; }

/* (libc's `syscall` is followed.) */
static void execve_by_kernel(const char *program, char **args) {
#if defined(__x86_64__)
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(SYS_execve), "D"(program), "S"(args), "d"(environ) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_execve, x0 __asm__("x0") = (long)program, x1 __asm__("x1") = (long)args,
                  x2 __asm__("x2") = (long)environ;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
#endif
}

int main(int argc, char **argv) {
    int n = argc > 2 ? atoi(argv[1]) : 0;
    for (int i = 0; i < 2 * n; i++) {
        char *args[] = {argv[2], 0};
        struct rusage used;
        int status;
        double begun = now();
        pid_t child = fork();
        if (!child) {
            if (i % 2)
                execve(argv[2], args, environ);
            else
                execve_by_kernel(argv[2], args);
            _exit(97);
        }
        if (wait4(child, &status, 0, &used) != child || status) return 1;
        printf("%s %.1f %.1f\n", i % 2 ? "followed" : "bare", now() - begun, us(used.ru_utime) + us(used.ru_stime));
    }
    return 0;
}

/* The visible effects of system and popen. Prints the same each time. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
#define SAY "echo \"$0 $#\"; tr '\\0' ' ' </proc/$$/cmdline; grep -E 'SigIgn|SigBlk' /proc/self/status; env | grep -cE 'DOORBELL|LD_PRELOAD'"

static volatile sig_atomic_t children, asked;
static void handler(int s) { s == SIGCHLD ? children++ : asked++; }

static void actions(const char *when)
{
    struct sigaction i, q;
    sigset_t now;
    sigaction(SIGINT, NULL, &i);
    sigaction(SIGQUIT, NULL, &q);
    sigprocmask(SIG_BLOCK, NULL, &now);
    printf("%s: int %s quit %s, child %sblocked\n", when, i.sa_handler == handler ? "own" : i.sa_handler == SIG_IGN ? "ignored" : "default",
        q.sa_handler == handler ? "own" : q.sa_handler == SIG_IGN ? "ignored" : "default", sigismember(&now, SIGCHLD) ? "" : "not ");
    fflush(stdout);
}

static void run(const char *command)
{
    errno = 0;
    int status = system(command);
    printf("%.20s: %x, errno %d\n", command ? command : "(none)", status, errno);
    fflush(stdout);
}

static void stream(const char *command, const char *mode)
{
    char **before = environ, line[4096];
    errno = 0;
    FILE *f = popen(command, mode);
    if (!f) {
        printf("popen %s: errno %d\n", mode, errno);
        return;
    }
    if (*mode == 'r')
        while (fgets(line, sizeof line, f))
            fputs(line, stdout);
    else
        fputs("echo read\n", f);
    fflush(stdout);
    int status = pclose(f);
    printf("popen %s: %x, the same variables: %d\n", mode, status, before == environ);
    fflush(stdout);
}

static void *sleeps(void *seconds)
{
    return (void *)(long)system(seconds);
}

static void gone(void *unused)
{
    actions("unwound");
}

static void *cancelled(void *pid)
{
    pthread_cleanup_push(gone, NULL);
    system("echo $$ >&9; exec sleep 100");
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    char *long_one = malloc(200001);
    signal(SIGCHLD, handler);
    signal(SIGINT, handler);
    run(NULL);
    run("exit 3");
    run("kill -9 $$");
    run("kill -2 $PPID; kill -3 $PPID; exit 4");
    run("--nosuchoption");
    run("if then");
    memset(long_one, 'x', 200000);
    long_one[200000] = 0;
    run(long_one);
    run(SAY);
    signal(SIGQUIT, SIG_IGN);
    run(SAY);
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGSEGV);
    sigprocmask(SIG_BLOCK, &some, NULL);
    run(SAY);
    signal(SIGQUIT, handler);
    printf("children %d, asked %d\n", children, asked);
    stream(SAY, "r");
    stream("cat", "w");
    stream("true", "bad");
    FILE *first = popen("cat", "w");
    stream("ls /proc/self/fd | wc -l", "r");
    printf("closed: %x\n", pclose(first));

    /* Several at the same time: the last one that ends restores the signals. */
    pthread_t t[3];
    char *seconds[] = {"sleep 0.1; exit 1", "sleep 0.2; exit 2", "sleep 0.3; exit 3"};
    for (int i = 0; i < 3; i++)
        pthread_create(&t[i], NULL, sleeps, seconds[i]);
    usleep(50000);
    actions("while they run");
    stream("grep -E 'SigIgn|SigBlk' /proc/self/status; env | grep -cE 'DOORBELL|LD_PRELOAD'", "r");
    for (int i = 0; i < 3; i++) {
        void *status;
        pthread_join(t[i], &status);
        printf("thread %d: %lx\n", i, (long)status);
    }
    actions("at the end");

    /* A thread that is cancelled while it waits: the shell is killed. */
    int p[2], pid = 0;
    void *result;
    char digits[32] = "";
    pipe(p);
    dup2(p[1], 9);
    pthread_create(&t[0], NULL, cancelled, NULL);
    read(p[0], digits, sizeof digits - 1);
    pid = atoi(digits);
    usleep(200000);
    pthread_cancel(t[0]);
    pthread_join(t[0], &result);
    printf("cancelled: %d, shell there: %d\n", result == PTHREAD_CANCELED, pid && !kill(pid, 0));
    actions("after that");
    return 0;
}

/* Descriptors: a program that closes, counts, replaces or forbids them finds those that it made, and no others.
   also: locker.c
   start of_8: "$@" ./descriptors limit 8
   start of_3: "$@" ./descriptors limit 3
   start outer_8: ulimit -n 8; "$@" ./descriptors plain
   start outer_12: ulimit -n 12; "$@" ./descriptors plain
   start size_0: "$@" ./descriptors size
   start close_all: "$@" ./descriptors close_all
   start close_range: "$@" ./descriptors close_range
   start replace_all: "$@" ./descriptors replace_all
   start epoll: "$@" ./descriptors epoll
   start next: "$@" ./descriptors next
   start daemon_sockets: "$@" ./descriptors pass
   start stdout_closed: "$@" ./descriptors plain >&-
   limit: 20 */
#include "around.h"
#include <sys/epoll.h>
#include <sys/socket.h>

static void *locks(void *x)
{
    lock(1000);
    return x;
}

int main(int argc, char **argv)
{
    char *what = argv[1];
    pthread_t t;
    lock(5);
    signal(SIGXFSZ, SIG_IGN);
    if (!strcmp(what, "limit")) {
        struct rlimit r = {atoi(argv[2]), atoi(argv[2])};
        setrlimit(RLIMIT_NOFILE, &r);
        for (int i = 0, f; (f = open("/dev/null", O_RDONLY)) >= 0; i++)
            printf("%d ", f);
        printf("errno %d\n", errno);
    } else if (!strcmp(what, "size")) {
        struct rlimit r = {0, 0};
        setrlimit(RLIMIT_FSIZE, &r);
    } else if (!strcmp(what, "close_all")) {
        int closed = 0;
        for (int i = 3; i < 1024; i++)
            closed += !close(i);
        printf("closed %d\n", closed);
    } else if (!strcmp(what, "close_range")) {
        printf("%ld\n", syscall(SYS_close_range, 3, ~0U, 0));
    } else if (!strcmp(what, "replace_all")) {
        int n = open("/dev/null", O_RDWR);
        for (int i = 3; i < 1000; i++)
            dup2(n, i);
    } else if (!strcmp(what, "epoll")) {
        int e = epoll_create1(0), added = 0;
        for (int i = 0; i < 1024; i++)
            added += !epoll_ctl(e, EPOLL_CTL_ADD, i, &(struct epoll_event){EPOLLIN});
        printf("%d added, %d\n", added, e);
    } else if (!strcmp(what, "next")) {
        for (int i = 0; i < 50; i++)
            printf("%d ", open("/dev/null", O_RDONLY));
        puts("");
        for (int i = 3; i < 60; i++)
            close(i);
    } else if (!strcmp(what, "pass")) {
        int p[2];
        socketpair(AF_UNIX, SOCK_STREAM, 0, p);
        printf("%d %d\n", p[0], p[1]);
    }
    for (int i = 0; i < 4; i++) {
        if (pthread_create(&t, NULL, locks, NULL))
            puts("no thread");
        else
            pthread_join(t, NULL);
    }
    around(stdout);
    printf("next %d\n", open("/dev/null", O_RDONLY));
    fflush(stdout);
    int r = system("./locker");
    printf("system %x\n", r);
    return 3;
}

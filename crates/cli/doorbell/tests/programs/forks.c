/* forks N: N children, one after the other, that take a lock. Prints the pages that a child touched first, the median of all. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static int less(const void *a, const void *b) { return (*(long *)a > *(long *)b) - (*(long *)a < *(long *)b); }

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1;
    long *pages = calloc(n, sizeof *pages);
    struct rusage used;
    for (int i = 0; i < n; i++) {
        pid_t child = fork();
        if (!child) {
            pthread_mutex_lock(&m);
            pthread_mutex_unlock(&m);
            _exit(0);
        }
        int status;
        if (wait4(child, &status, 0, &used) != child || status) return 1;
        pages[i] = used.ru_minflt;
    }
    qsort(pages, n, sizeof *pages, less);
    printf("pages %ld\n", pages[n / 2]);
    return 0;
}

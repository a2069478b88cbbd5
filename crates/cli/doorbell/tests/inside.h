/* Where a thread of this process is. How long it takes to come there nobody can say on a busy machine. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns when the thread is inside a system call: SYS_futex is a lock that it waits for. Or after half a minute, for the test to
 * say what is wrong. */
static inline void until_inside(int tid, long call) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    for (int looks = 0; looks < 30000; looks++) {
        int file = open(path, O_RDONLY);
        ssize_t n = file < 0 ? -1 : read(file, text, sizeof text - 1);
        if (file >= 0) close(file);
        if (n < 0) {
            /* A kernel that does not say. */
            usleep(300000);
            return;
        }
        text[n] = 0;
        /* "running", or the number and its arguments. */
        if (text[0] >= '0' && text[0] <= '9' && atol(text) == call) return;
        usleep(1000);
    }
}

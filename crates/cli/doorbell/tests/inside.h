/* Where a thread of this process is. The time to get there has no bound on a busy machine. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns when the thread is inside a system call: SYS_futex if it waits for a lock. Or after half a minute, so that the test
 * reports the error. */
static inline void until_inside(int tid, long call) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    for (int looks = 0; looks < 30000; looks++) {
        int file = open(path, O_RDONLY);
        ssize_t n = file < 0 ? -1 : read(file, text, sizeof text - 1);
        if (file >= 0) close(file);
        if (n < 0) {
            /* A kernel that does not report it. */
            usleep(300000);
            return;
        }
        text[n] = 0;
        /* "running", or the number and its arguments. */
        if (text[0] >= '0' && text[0] <= '9' && atol(text) == call) return;
        usleep(1000);
    }
}

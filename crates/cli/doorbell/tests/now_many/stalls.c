/* Serves a file that can be opened and never read: a file system of FUSE, in a folder that its argument names, for this process's
 * mounts alone. When it ends, what waits for it gets errors. The second time that the file is opened it is without the page cache, so
 * that mmap waits for the reads of others, in the kernel, while it changes the process's mappings. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static int fuse;

static void reply(const struct fuse_in_header *to, int error, const void *body, size_t n) {
    char bytes[512];
    struct fuse_out_header head = {sizeof head + n, error, to->unique};
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, body, n);
    if (write(fuse, bytes, sizeof head + n) < 0) perror("reply");
}

int main(int n, char **arguments) {
    static char request[1 << 18];
    const struct fuse_in_header *in = (void *)request;
    char options[128];
    unsigned opened = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(100);
    fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    if (fuse < 0 || unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) ||
        mount("stalls", arguments[n - 1], "fuse", MS_NOSUID | MS_NODEV, options)) {
        printf("no file system: %s\n", strerror(errno));
        return 0;
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (read(fuse, request, sizeof request) > 0) {
        int is_root = in->nodeid == 1;
        struct fuse_attr attr = {.ino = in->nodeid, .size = 1 << 16, .nlink = 1, .mode = is_root ? S_IFDIR | 0755 : S_IFREG | 0644};
        if (in->opcode == FUSE_INIT) {
            struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = 4096, .max_write = 4096};
            reply(in, 0, &out, sizeof out);
        } else if (in->opcode == FUSE_LOOKUP) {
            attr.ino = 2, attr.mode = S_IFREG | 0644;
            struct fuse_entry_out out = {.nodeid = 2, .entry_valid = 100, .attr_valid = 100, .attr = attr};
            reply(in, 0, &out, sizeof out);
        } else if (in->opcode == FUSE_GETATTR) {
            struct fuse_attr_out out = {.attr_valid = 100, .attr = attr};
            reply(in, 0, &out, sizeof out);
        } else if (in->opcode == FUSE_OPEN) {
            struct fuse_open_out out = {.open_flags = FOPEN_KEEP_CACHE | (opened++ ? FOPEN_DIRECT_IO : 0)};
            reply(in, 0, &out, sizeof out);
        } else if (in->opcode == FUSE_FLUSH || in->opcode == FUSE_RELEASE) {
            reply(in, 0, "", 0);
        } else if (in->opcode != FUSE_READ && in->opcode != FUSE_FORGET && in->opcode != FUSE_INTERRUPT && in->opcode != FUSE_BATCH_FORGET) {
            reply(in, -ENOSYS, "", 0);
        }
    }
    return 0;
}

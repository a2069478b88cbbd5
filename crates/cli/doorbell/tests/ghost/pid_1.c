/* Process 1 of a container: orphans are reaped, signals reach the program.
   needs: root, unshare
   start: unshare -pf --mount-proc "$@" ./pid_1
   start as_child: unshare -pf --mount-proc "$@" sh -c './pid_1; exit $?'
   limit: 20 */
#include "around.h"

int main(void)
{
    for (int i = 0; i < 5; i++) {
        if (!fork()) {
            if (!fork()) {
                usleep(200000);
                _exit(3);
            }
            _exit(0);
        }
        lock(1);
    }
    usleep(600000);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    int zombies = 0, status;
    DIR *d = opendir("/proc");
    for (struct dirent *e; (e = readdir(d));) {
        char line[512], path[300];
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        FILE *f = atoi(e->d_name) ? fopen(path, "r") : NULL;
        zombies += f && fgets(line, sizeof line, f) && strstr(line, ") Z ");
        if (f)
            fclose(f);
    }
    printf("zombies %d\n", zombies);
    return 4;
}

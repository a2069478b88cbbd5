/* Another user cannot open, change or truncate what doorbell keeps in its folder, whatever the umask is.
   needs: root, setpriv
   also: locker.c
   check: mkdir -m 755 d; chmod 755 .; (umask 0; for i in 1 2 3 4 5; do "$THE_DOORBELL" record -q --force -o a.doorbell --agent-dir d --locks sleep 0.3; done) & setpriv --reuid=65534 --regid=65534 --clear-groups ./agent_dir d 4; S=$?; wait; [ -z "$(ls -A d)" ] || echo "the folder keeps $(ls -A d)"; exit $S */
#include "around.h"
#include <time.h>

int main(int argc, char **argv)
{
    int got = 0;
    char path[600], seen[600] = "";
    for (time_t end = time(NULL) + atoi(argv[2]); time(NULL) < end;) {
        DIR *d = opendir(argv[1]), *in;
        for (struct dirent *e, *f; d && (e = readdir(d));) {
            snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
            if (e->d_name[0] == '.' || !(in = opendir(path)))
                continue;
            while ((f = readdir(in))) {
                snprintf(path, sizeof path, "%s/%s/%s", argv[1], e->d_name, f->d_name);
                if (f->d_name[0] != '.' && open(path, O_RDWR) >= 0) {
                    got++;
                    snprintf(seen, sizeof seen, "%s", f->d_name);
                }
            }
            closedir(in);
        }
        if (d)
            closedir(d);
    }
    if (got)
        printf("another user opens %s for writing\n", seen);
    return got > 0;
}

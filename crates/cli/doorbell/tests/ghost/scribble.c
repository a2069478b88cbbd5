/* Wild stores into all memory that the program shares with others: doorbell outlives them.
   start: for s in 2 5 14 17 20; do "$@" ./scribble $s; echo $?; rm -f *.doorbell; done
   cannot: all a wild store into memory that it shares with doorbell may end the program, as one into its own would
   limit: 100 */
#include "around.h"

static void *work(void *unused)
{
    for (int i = 0; i < 200; i++) {
        lock(1000);
        usleep(200);
    }
    return unused;
}

int main(int argc, char **argv)
{
    int seed = atoi(argv[1]), n = 0;
    unsigned long begin[64], end[64];
    char line[512];
    pthread_t t[3];
    srandom(seed);
    for (int i = 0; i < 3; i++)
        pthread_create(&t[i], NULL, work, NULL);
    usleep(5000);
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f) && n < 64)
        if (strstr(line, "rw-s") && strstr(line, "doorbell"))
            sscanf(line, "%lx-%lx", &begin[n], &end[n]), n++;
    fclose(f);
    for (int k = 0; k < 200 && n; k++, usleep(300)) {
        int i = random() % n;
        unsigned long size = end[i] - begin[i];
        if (size > 1 << 20 && random() % 2)
            size = 8192;
        for (int j = 0; j < (seed % 3 == 0 ? 1 : seed % 3 == 1 ? 50 : 2000); j++) {
            unsigned long *p = (unsigned long *)(begin[i] + (random() % size & ~7UL));
            switch (random() % 4) {
            case 0: *p = ~0UL; break;
            case 1: *p = random() * 0x100000001UL; break;
            case 2: *p += 1UL << random() % 60; break;
            default: *p = 0;
            }
        }
    }
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    return 7;
}

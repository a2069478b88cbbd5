/* Prints whether doorbell's library is loaded here, and whether the environment shows it. Exits with 7. */
#include <stdio.h>
#include <string.h>

extern char **environ;

int main(int argc, char **argv)
{
    char line[4096];
    int loaded = 0, visible = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        loaded |= strstr(line, "doorbell-agent") != NULL;
    for (char **e = environ; *e; e++)
        visible |= !strncmp(*e, "DOORBELL_", 9) || !strncmp(*e, "LD_PRELOAD=", 11);
    printf("%s loaded=%d visible=%d", argc > 1 ? argv[1] : "", loaded, visible);
    for (int i = 2; i < argc; i++)
        printf(" %s", argv[i]);
    printf("\n");
    return 7;
}

/* Descriptors 0 to 2 are closed at the start: the first open returns 0, and stays closed in what the program starts.
   start: "$@" ./closed_stdio <&- >&- 2>&-; S=$?; cat o.txt; exit $S
   start of_0: "$@" ./closed_stdio <&-; S=$?; cat o.txt; exit $S
   start of_2: "$@" ./closed_stdio 2>&-; S=$?; cat o.txt; exit $S */
#include "around.h"

int main(void)
{
    int first = open("o.txt", O_CREAT | O_WRONLY, 0666), to = fcntl(first, F_DUPFD, 50);
    FILE *f = fdopen(to, "w");
    close(first);
    around(f);
    fprintf(f, "first %d\n", first);
    fclose(f);
    lock(9);
    return 3;
}

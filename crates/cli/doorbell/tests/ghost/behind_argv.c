/* Finds its environment and the auxiliary vector behind argv on the stack, as Free Pascal's and Go's runtimes do.
   cannot: all doorbell's entries stay there, empty: what follows them, the auxiliary vector, cannot move, because glibc points into it */
#include "around.h"
#include <elf.h>

int main(int argc, char **argv)
{
    char **e = argv + argc + 1;
    int n = 0, bad = 0;
    for (; e[n]; n++)
        bad += !strchr(e[n], '=');
    printf("without a name: %d; as environ: %d\n", bad, e == environ);
    for (int i = 0; i < n; i++)
        if (strncmp(e[i], "WAY=", 4) && strncmp(e[i], "_=", 2))
            printf("%s\n", e[i]);
    for (Elf64_auxv_t *a = (void *)(e + n + 1); a->a_type; a++)
        if (a->a_type == AT_SECURE || a->a_type == AT_PAGESZ)
            printf("%ld: %ld\n", a->a_type, a->a_un.a_val);
    lock(9);
    return 0;
}

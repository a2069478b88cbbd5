/* The program's own injection library: it replaces the push and pop functions, and prints their counts at the end. */
#include <stdint.h>
#include <stdio.h>

typedef void (*function)(void);
static int pushed, popped;

static int push(const char *text) { return (void)text, pushed++; }
static int pop(void) { return popped++; }

int InitializeInjectionNvtx2(const void *(*table)(uint32_t)) {
    const struct { uint64_t size; int (*functions)(uint32_t, function ***, uint32_t *); } *callbacks = table(1);
    function **at;
    uint32_t n;
    if (!callbacks || !callbacks->functions(1, &at, &n)) return 0;
    *at[9] = (function)push;
    *at[11] = (function)pop;
    return 1;
}

__attribute__((destructor)) static void say(void) { printf("own: %d pushed, %d popped\n", pushed, popped); }

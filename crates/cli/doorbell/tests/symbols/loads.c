// Calls a function of one library, unloads it, and calls one of another library, which is mapped where the first one was.
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static void *call(const char *library, const char *function) {
    void *handle = dlopen(library, RTLD_NOW);
    void (*f)(void) = handle ? dlsym(handle, function) : 0;
    if (!f) return 0;
    for (int i = 0; i < 100; i++) f();
    dlclose(handle);
    return f;
}

int main(void) {
    void *first = call("./libone.so", "in_one");
    // Longer than the agent's interval between two checks of the mappings.
    usleep(5000);
    void *second = call("./libtwo.so", "in_two");
    puts(first == second ? "the same address" : "two addresses");
    return first && second ? 0 : 1;
}

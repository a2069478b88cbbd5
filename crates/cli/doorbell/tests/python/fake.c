/* Poses as an interpreter that doorbell does not read: FAKE_VERSION is its version, FAKE_STATE the thread's state. */
#include <stdio.h>
#include <stdlib.h>

extern int cuCtxSynchronize(void);

static char zeros[4096];
long PyCode_Type, PyUnicode_Type, PyBytes_Type;

void *PyGILState_GetThisThreadState(void) {
    const char *at = getenv("FAKE_STATE");
    return at ? (void *)strtoul(at, 0, 16) : zeros;
}
const char *Py_GetVersion(void) { return getenv("FAKE_VERSION"); }
int _Py_IsFinalizing(void) { return 0; }
#ifdef DEBUG_BUILD
void _Py_NegativeRefcount(void) {}
#endif

int main(void) {
    for (int i = 0; i < 3; i++)
        if (cuCtxSynchronize()) return 1;
    puts("done");
    return 0;
}

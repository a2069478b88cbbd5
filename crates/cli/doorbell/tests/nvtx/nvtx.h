/* The program's side of NVTX, as small as possible: function pointers that an injection library may replace.
 *
 * What NVTX 3 does in a program: the first call reads the path of a library from the environment, opens it, and calls its
 * InitializeInjectionNvtx2 with a function that returns tables by number. Table 1 has a function that returns a module's pointers. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union { uint64_t u64; int64_t i64; double f64; uint32_t u32; } payload;
    int32_t message_type;
    union { const char *text; const wchar_t *wide; void *registered; } message;
} attributes;

#define ATTRIBUTES(...) (&(attributes){.version = 3, .size = sizeof(attributes), __VA_ARGS__})
#define TEXT(t) .message_type = 1, .message.text = (t)
#define WIDE(t) .message_type = 2, .message.wide = (t)
#define REGISTERED(t) .message_type = 3, .message.registered = (t)

typedef void (*function)(void);
static function core[16], core2[16];

static int functions(uint32_t module, function ***table, uint32_t *n) {
    static function *pointers[2][17];
    function *of = module == 1 ? core : module == 5 ? core2 : NULL;
    if (!of) return 0;
    for (int i = 1; i < 16; i++) pointers[module == 5][i] = &of[i];
    *table = pointers[module == 5];
    if (n) *n = 16;
    return 1;
}

static const void *tables(uint32_t number) {
    static const struct { size_t size; int (*functions)(uint32_t, function ***, uint32_t *); } callbacks = {sizeof callbacks, functions};
    return number == 1 ? &callbacks : NULL;
}

/* 1: connected. */
static int nvtx(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    if (!path) return 0;
    void *library = dlopen(path, RTLD_LAZY);
    if (!library) return 0;
    int (*begin)(const void *(*)(uint32_t)) = (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2");
    if (begin && begin(tables)) return 1;
    dlclose(library);
    return 0;
}

#define CALL(table, i, type, otherwise, ...) (table[i] ? ((type)table[i])(__VA_ARGS__) : otherwise)
#define VOID(table, i, type, ...) (table[i] ? ((type)table[i])(__VA_ARGS__) : (void)0)

#define mark(t) VOID(core, 2, void (*)(const char *), t)
#define start(t) CALL(core, 5, uint64_t (*)(const char *), 0, t)
#define end(id) VOID(core, 7, void (*)(uint64_t), id)
#define push_ex(a) CALL(core, 8, int (*)(attributes *), -2, a)
#define push(t) CALL(core, 9, int (*)(const char *), -2, t)
#define push_wide(t) CALL(core, 10, int (*)(const wchar_t *), -2, t)
#define pop() CALL(core, 11, int (*)(void), -2)
#define domain_mark(d, a) VOID(core2, 1, void (*)(void *, attributes *), d, a)
#define domain_start(d, a) CALL(core2, 2, uint64_t (*)(void *, attributes *), 0, d, a)
#define domain_end(d, id) VOID(core2, 3, void (*)(void *, uint64_t), d, id)
#define domain_push(d, a) CALL(core2, 4, int (*)(void *, attributes *), -2, d, a)
#define domain_pop(d) CALL(core2, 5, int (*)(void *), -2, d)
#define registered(d, t) CALL(core2, 10, void *(*)(void *, const char *), NULL, d, t)
#define domain(t) CALL(core2, 12, void *(*)(const char *), NULL, t)
#define destroy(d) VOID(core2, 14, void (*)(void *), d)

/* Samples in ns: as many as come, their percentiles, and a time as text. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct samples { size_t count, room; uint64_t *ns; };

static inline void add(struct samples *to, uint64_t ns)
{
    if (to->count == to->room) {
        to->room = to->room ? 2 * to->room : 4096;
        to->ns = realloc(to->ns, to->room * sizeof *to->ns);
        if (!to->ns)
            exit(2);
    }
    to->ns[to->count++] = ns;
}

static inline int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static inline void sorted(struct samples *s)
{
    if (s->count)
        qsort(s->ns, s->count, sizeof *s->ns, by_value);
}

/* Of sorted samples, the nearest rank: the least one that `of` in `out_of` do not exceed. At least ten have to lie beyond it (but of
 * the median), otherwise 0. */
static inline uint64_t percentile(const struct samples *s, uint64_t of, uint64_t out_of)
{
    uint64_t needs = of * 2 == out_of ? 1 : 10 * out_of / (out_of - of);
    return s->count < needs ? 0 : s->ns[(s->count * of + out_of - 1) / out_of - 1];
}

static inline uint64_t p50(const struct samples *s) { return percentile(s, 1, 2); }
static inline uint64_t p99(const struct samples *s) { return percentile(s, 99, 100); }
static inline uint64_t p999(const struct samples *s) { return percentile(s, 999, 1000); }
static inline uint64_t most(const struct samples *s) { return s->count ? s->ns[s->count - 1] : 0; }

/* A time, three digits of it; 0 is none. */
static inline const char *text(uint64_t ns)
{
    static char texts[16][24];
    static unsigned next;
    char *to = texts[next++ % 16];
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double value = (double)ns;
    int unit = 0;
    for (; value >= 999.5 && unit < 3; unit++)
        value /= 1000;
    if (ns == 0)
        snprintf(to, sizeof *texts, "-");
    else
        snprintf(to, sizeof *texts, "%.*f %s", unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, value, units[unit]);
    return to;
}

static inline void say(const char *what, struct samples *s)
{
    sorted(s);
    if (s->count)
        printf("%-34s %6zu samples, p50 %s, p99 %s, p99.9 %s, max %s\n", what, s->count, text(p50(s)), text(p99(s)), text(p999(s)), text(most(s)));
}

#endif

/* What the tests in C share: orders in one expression, and what a call or a value must be. */
#include "doorbell.h"
#include <stdio.h>

static int failures;

/* A call's code. An error has a detail. */
static void expect(int line, int code, int wanted)
{
    if (code != wanted) {
        fprintf(stderr, "line %d: %d (%s: %s), not %d\n", line, code, doorbell_error_text(code), doorbell_error_detail(), wanted);
        failures++;
    } else if (code != DOORBELL_OK && doorbell_error_detail()[0] == 0) {
        fprintf(stderr, "line %d: no detail\n", line);
        failures++;
    }
}
#define EXPECT(call, wanted) expect(__LINE__, (call), (wanted))

/* A value. */
static inline void is(int line, long value, long wanted)
{
    if (value != wanted) {
        fprintf(stderr, "line %d: %ld, not %ld\n", line, value, wanted);
        failures++;
    }
}
#define IS(value, wanted) is(__LINE__, (long)(value), (long)(wanted))

typedef struct {
    doorbell_buffer_t buffer;
    uint64_t offset;
    uint32_t value;
} word_t;

static const word_t no_word = {0, 0, 0};

#define AFTER(ticket)                                                                                                  \
    (&(doorbell_order_t){.size = sizeof(doorbell_order_t), .ticket_count = 1, .tickets = (doorbell_ticket_t[]){ticket}})
#define AFTER_STREAM(of)                                                                                               \
    (&(doorbell_order_t){.size = sizeof(doorbell_order_t), .flags = DOORBELL_ORDER_STREAM, .stream = (of)})
#define AFTER_EVENT(of) (&(doorbell_order_t){.size = sizeof(doorbell_order_t), .event = (of)})
#define WORDS(after, before)                                                                                           \
    (&(doorbell_order_t){.size = sizeof(doorbell_order_t),                                                             \
                         .wait_buffer = (after).buffer,                                                                \
                         .wait_offset = (after).offset,                                                                \
                         .wait_value = (after).value,                                                                  \
                         .signal_buffer = (before).buffer,                                                             \
                         .signal_offset = (before).offset,                                                             \
                         .signal_value = (before).value})

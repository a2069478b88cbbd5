/* Orders in one expression. */
#include "doorbell.h"

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

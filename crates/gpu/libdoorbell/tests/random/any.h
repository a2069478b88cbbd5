/* Of random.c: any call on any handle. */
#ifndef RANDOM_ANY_H
#define RANDOM_ANY_H

#include "memory.h"


static void a_copy(struct session *s, doorbell_t *h)
{
    doorbell_piece_t pieces[8];
    doorbell_ticket_t ticket = 0;
    struct order o = {.locked = 0};
    uint32_t way;
    char text[200];
    size_t count = 1 + below(8), size = one_in(60) ? below(100) : sizeof *pieces;
    for (size_t n = 0; n < 8; n++) {
        pieces[n] = (doorbell_piece_t){a_buffer(s, 0), below(BYTES / 2), a_buffer(s, 0), below(BYTES / 2), below(one_in(2) ? BYTES / 2 : 100)};
        if (one_in(40))
            pieces[n].bytes = below(2) ? next_random() : 0;
        if (one_in(40))
            pieces[n].to_offset = next_random();
    }
    doorbell_piece_t *p = pieces;
    uint64_t timeout = a_timeout();
    int code;
    switch (below(5)) {
    case 0:
        DO_IN(ms_of(timeout), copy, doorbell_copy(h, p->to, p->to_offset, p->from, p->from_offset, p->bytes, timeout));
        break;
    case 1:
        DOORBELL(copy_explain, h, p->to, p->from, p->bytes, one_in(2), &way, text, below(sizeof text));
        break;
    case 2: {
        doorbell_order_t *order = an_order(s, &o);
        code = DOORBELL(copy_async, h, p->to, p->to_offset, p->from, p->from_offset, p->bytes, order, &ticket);
        submitted(s, &o, code, ticket);
        break;
    }
    case 3: {
        static uint32_t numbers[2][3000];
        doorbell_part_t parts[3] = {{p->to, below(4096), p->from, below(4096)}, {p[1].to, 0, p->from, 0}, {p->to, 0, p[2].from, below(100)}};
        doorbell_pages_t pages = {.size = one_in(60) ? below(100) : sizeof pages, .bytes = 1 + below(64), .count = one_in(60) ? next_random() : below(one_in(8) ? 3000 : 40)};
        pages.index_size = one_in(40) ? (uint32_t)below(9) : one_in(4) ? 8 : 4;
        /* (As many numbers of 8 bytes.) */
        if (pages.index_size == 8 && pages.count < 3000)
            pages.count /= 2;
        pages.to_index = one_in(4) ? NULL : numbers[0], pages.from_index = one_in(4) ? NULL : numbers[1];
        pages.to_stride = one_in(3) ? 0 : below(200), pages.from_stride = one_in(3) ? 0 : one_in(30) ? next_random() : below(200);
        pages.flags = one_in(30) ? (uint32_t)next_random() : (uint32_t)below(2);
        /* (Other threads change them, too, as a program might.) */
        for (int n = 0; n < 20; n++)
            ((volatile uint32_t *)numbers[below(2)])[below(3000)] = (uint32_t)(one_in(200) ? next_random() : below(BYTES / 200));
        doorbell_order_t *order = an_order(s, &o);
        code = DOORBELL(pages_async, h, parts, one_in(60) ? (size_t)next_random() | 1 << 24 : 1 + below(3), one_in(60) ? below(100) : sizeof *parts, &pages, order, &ticket);
        submitted(s, &o, code, ticket);
        break;
    }
    default: {
        doorbell_order_t *order = an_order(s, &o);
        code = DOORBELL(copy_batch_async, h, pieces, one_in(60) ? (1 << 24) + 1 : count, size, order, &ticket);
        submitted(s, &o, code, ticket);
    }
    }
}

static void a_buffer_call(struct session *s, doorbell_t *h)
{
    doorbell_buffer_t buffer = 0;
    void *pointer;
    uint64_t length;
    switch (below(6)) {
    case 0: case 1:
        if (DOORBELL(buffer_create, h, below(one_in(30) ? 5 : 2), one_in(30) ? below(2) * (UINT64_C(1) << 40) : BYTES, &buffer, &pointer) == DOORBELL_OK)
            put(s, h, BUFFER, buffer);
        break;
    case 2:
        DOORBELL(buffer_get, h, a_buffer(s, 0), &pointer, &length);
        break;
    case 3:
        DOORBELL(buffer_free, h, pick(s, BUFFER));
        break;
    case 4:
        /* Nobody's memory, or another GPU's. */
        pointer = gpus > 1 && one_in(2) ? (void *)(uintptr_t)me->device[1 - s->gpu] : (void *)&sessions;
        if (pointer && DOORBELL(buffer_register, h, pointer, BYTES, &buffer) == DOORBELL_OK)
            complain("buffer_register took memory that is not this GPU's");
        break;
    default:
        DOORBELL(buffer_register, h, me->host[s->gpu], one_in(3) ? 0 : UINT64_C(1) << 40, &buffer);
    }
}

static void a_prepared_copy(struct session *s, doorbell_t *h)
{
    uint64_t handle = 0;
    doorbell_ticket_t ticket = 0;
    struct order o = {.locked = 0};
    doorbell_order_t *order;
    static const uint8_t bytes[BYTES];
    doorbell_frame_t frame = {.size = one_in(40) ? below(64) : sizeof frame};
    uint64_t length = one_in(30) ? next_random() : 1 + below(BYTES / 4);
    int code;
    switch (below(12)) {
    case 0:
        if (DOORBELL(transfer_create, h, a_buffer(s, 0), below(BYTES / 2), a_buffer(s, 0), below(BYTES / 2), length, &handle) == DOORBELL_OK)
            put(s, h, TRANSFER, handle);
        break;
    case 1:
        if (DOORBELL(transfer_create_bytes, h, a_buffer(s, 0), below(BYTES / 2), one_in(2) ? 64 : length, &handle) == DOORBELL_OK)
            put(s, h, BYTES_TRANSFER, handle);
        break;
    case 2:
        if (DOORBELL(ring_create, h, a_buffer(s, 0), 0, a_buffer(s, 0), 0, 1 + below(BYTES / 4), one_in(20) ? below(2000) : 2 + below(3), &handle) == DOORBELL_OK)
            put(s, h, RING, handle);
        break;
    case 3: case 4: case 5: case 6:
        order = an_order(s, &o);
        submitted(s, &o, code = DOORBELL(transfer_async, h, pick(s, TRANSFER), order, &ticket), ticket);
        break;
    case 7: case 8:
        order = an_order(s, &o);
        submitted(s, &o, code = DOORBELL(transfer_bytes_async, h, pick(s, BYTES_TRANSFER), bytes, one_in(2) ? 64 : below(BYTES), order, &ticket), ticket);
        break;
    case 9: case 10:
        handle = pick(s, RING);
        if (DOORBELL(ring_next, h, handle, &frame) != DOORBELL_OK && below(10))
            break;
        order = an_order(s, &o);
        submitted(s, &o, code = DOORBELL(ring_async, h, handle, order, &ticket), ticket);
        break;
    default: {
        enum kind kind = TRANSFER + below(3);
        free_handle(h, kind, pick(s, kind));
    }
    }
}

static void a_wait(struct session *s, doorbell_t *h)
{
    doorbell_ticket_t tickets[6];
    uint64_t timeout = a_timeout(), left;
    size_t count = one_in(30) ? 0 : 1 + below(6), index;
    bool done;
    int code = 0;
    for (size_t n = 0; n < 6; n++)
        tickets[n] = a_ticket(s);
    switch (below(8)) {
    case 0: code = DO_IN(ms_of(timeout), wait, doorbell_wait(h, tickets[0], timeout)); break;
    case 1: code = DO_IN(ms_of(timeout), wait_sleeping, doorbell_wait_sleeping(h, tickets[0], below(100000), timeout)); break;
    case 2: code = DO_IN(ms_of(timeout), wait_any, doorbell_wait_any(h, tickets, count, timeout, &index)); break;
    case 3: code = DO_IN(ms_of(timeout), wait_all, doorbell_wait_all(h, tickets, count, timeout)); break;
    case 4: case 5: code = DOORBELL(poll, h, tickets[0], &done); break;
    case 6: code = DOORBELL(pending, h, tickets[0], &left); break;
    default:
        if (!me->streams[s->gpu])
            break;
        lock_submits(0);
        code = DOORBELL(stream_wait, h, me->streams[s->gpu], tickets[0]);
        unlock_submits();
    }
    if (code == DOORBELL_STOPPED)
        atomic_store(&s->dead, 1);
}

static void a_queue_call(struct session *s, doorbell_t *h)
{
    doorbell_queue_t queue = pick(s, QUEUE);
    doorbell_done_t done[8];
    size_t count;
    int32_t descriptor;
    bool was_there;
    uint64_t timeout = below(one_in(5) ? 50 * MS : 300000);
    switch (below(10)) {
    case 0:
        if (DOORBELL(queue_create, h, one_in(20) ? below(2) * 100000 : 1 + below(100), &queue) == DOORBELL_OK)
            put(s, h, QUEUE, queue);
        break;
    case 1: case 2: case 3:
        DOORBELL(queue_add, h, queue, a_ticket(s), 5);
        break;
    case 4: case 5:
        if (one_in(50))
            DOORBELL(queue_poll, h, queue, done, 1, below(sizeof *done), &count);
        else if (DOORBELL(queue_poll, h, queue, done, below(8), sizeof *done, &count) == DOORBELL_OK)
            for (size_t n = 0; n < count; n++)
                if (done[n].user != 5 || (done[n].code != 0 && done[n].code != DOORBELL_STOPPED && done[n].code != DOORBELL_CLOSED))
                    complain("queue_poll: user %llu, code %d", (unsigned long long)done[n].user, done[n].code);
        break;
    case 6: DO_IN(ms_of(timeout), queue_wait, doorbell_queue_wait(h, queue, timeout)); break;
    case 7: DOORBELL(queue_remove, h, queue, a_ticket(s), &was_there); break;
    case 8:
        if (DOORBELL(queue_descriptor, h, queue, &descriptor) == DOORBELL_OK) {
            struct pollfd fd = {.fd = descriptor, .events = POLLIN};
            poll(&fd, 1, (int)below(10));
        }
        break;
    default:
        if (one_in(4))
            DOORBELL(queue_free, h, queue);
    }
}

static void a_message_call(struct session *s, doorbell_t *h)
{
    doorbell_message_t message = pick(s, MESSAGE);
    uint32_t number;
    uint8_t answer[DOORBELL_MESSAGE_BYTES];
    uint64_t timeout = below(MS);
    switch (below(5)) {
    case 0:
        for (int n = 0; n < 8; n++)
            if (DOORBELL(message_create, h, pick(s, BUFFER), below(4) * 64, pick(s, BUFFER), below(4) * 64, &message) == DOORBELL_OK) {
                put(s, h, MESSAGE, message);
                break;
            }
        break;
    case 1: case 2: DOORBELL(message_send, h, message, "message", one_in(20) ? below(200) : 7, &number); break;
    case 3: DO_IN(ms_of(timeout), message_wait, doorbell_message_wait(h, message, below(3), answer, timeout)); break;
    default: DOORBELL(message_free, h, message);
    }
}

#endif

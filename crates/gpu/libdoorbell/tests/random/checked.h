/* Of random.c: copies whose bytes are checked. */
#ifndef RANDOM_CHECKED_H
#define RANDOM_CHECKED_H

#include "graphs.h"


/* CLOSED comes before the session's copies have ended. They have when the next session is there. */
static void wait_for_close(struct session *s, doorbell_t *h)
{
    begin_call(K_waits_for_close, 0);
    while (atomic_load(&s->handle) == h)
        usleep(100);
    end_call(K_waits_for_close, 0);
}

/* Some copy did not end well: after this none writes to this thread's memory any more. */
static void give_up(struct session *s, struct own *own)
{
    doorbell_t *h = own->of;
    own->of = NULL;
    if (!h || atomic_load(&s->handle) != h)
        return;
    int codes[2] = {DOORBELL(buffer_free, h, own->host), DOORBELL(buffer_free, h, own->device)};
    for (int n = 0; n < 2; n++)
        if (own->middle[n])
            DOORBELL(buffer_free, h, own->middle[n]);
    if (codes[0] == DOORBELL_CLOSED || codes[1] == DOORBELL_CLOSED)
        wait_for_close(s, h);
    uint64_t pattern = next_random();
    write_pattern(me->host[s->gpu], 4 * BYTES, pattern);
    usleep((useconds_t)below(2000));
    compare(me->host[s->gpu], 4 * BYTES, pattern, "unpinned memory");
}

static struct own *registered(struct session *s, doorbell_t *h)
{
    struct own *own = &me->own[s - sessions];
    if (!me->host[s->gpu])
        return NULL;
    if (own->of == h)
        return own;
    give_up(s, own);
    memset(own, 0, sizeof *own);
    if (DOORBELL(buffer_register, h, me->host[s->gpu], 4 * BYTES, &own->host) != DOORBELL_OK)
        return NULL;
    if (DOORBELL(buffer_register, h, (void *)(uintptr_t)me->device[s->gpu], 2 * BYTES, &own->device) != DOORBELL_OK) {
        DOORBELL(buffer_free, h, own->host);
        return NULL;
    }
    for (int n = 0; n < 2; n++)
        if (DOORBELL(buffer_create, h, n ? DOORBELL_VIDEO : DOORBELL_HOST, 2 * BYTES, &own->middle[n], NULL) != DOORBELL_OK)
            own->middle[n] = 0;
    own->of = h;
    return own;
}

struct place { doorbell_buffer_t buffer; uint64_t offset; };

/* By one of the ways. A ticket of 0: it is done. `data`: the bytes in the program's memory, or null. */
static int copy_by(struct session *s, doorbell_t *h, struct place to, struct place from, uint64_t bytes, const uint8_t *data,
                   const doorbell_order_t *order, doorbell_ticket_t *ticket)
{
    uint64_t handle = 0, half = bytes / 2, timeout = a_timeout();
    doorbell_piece_t pieces[2] = {{to.buffer, to.offset, from.buffer, from.offset, half},
                                  {to.buffer, to.offset + half, from.buffer, from.offset + half, bytes - half}};
    doorbell_part_t part = {to.buffer, to.offset, from.buffer, from.offset};
    uint32_t numbers[64];
    doorbell_pages_t pages = {.size = sizeof pages, .count = 64, .index_size = 4, .bytes = bytes / 64, .to_index = numbers, .from_index = numbers, .flags = DOORBELL_PAGES_DISTINCT};
    for (uint32_t n = 0; n < 64; n++)
        numbers[n] = n * 27 % 64;
    doorbell_frame_t frame = {.size = sizeof frame};
    uint64_t way = below(7);
    int code = DOORBELL_BUSY, tries = 0;
    me->by[order != NULL || me->by[0] >= 0] = (int)way;
    *ticket = 0;
    if (way == 0 && !order)
        return DO_IN(ms_of(timeout), copy, doorbell_copy(h, to.buffer, to.offset, from.buffer, from.offset, bytes, timeout));
    if (way == 1)
        code = DOORBELL(transfer_create, h, to.buffer, to.offset, from.buffer, from.offset, bytes, &handle);
    else if (way == 2 && data)
        code = DOORBELL(transfer_create_bytes, h, to.buffer, to.offset, bytes, &handle);
    else if (way == 3)
        code = DOORBELL(ring_create, h, to.buffer, to.offset, from.buffer, from.offset, bytes, 2, &handle);
    if (handle == 0 && code != DOORBELL_BUSY)
        return code;
    do {
        if (way == 3 && (code = DOORBELL(ring_next, h, handle, &frame)) == DOORBELL_OK)
            code = DOORBELL(ring_async, h, handle, order, ticket);
        else if (way == 3)
            ;
        else if (handle && way == 1)
            code = DOORBELL(transfer_async, h, handle, order, ticket);
        else if (handle)
            code = DOORBELL(transfer_bytes_async, h, handle, data, bytes, order, ticket);
        else if (way == 4 && half > 0)
            code = DOORBELL(copy_batch_async, h, pieces, 2, sizeof *pieces, order, ticket);
        else if (way == 5 && bytes > 0 && bytes % 64 == 0)
            code = DOORBELL(pages_async, h, &part, 1, sizeof part, &pages, order, ticket);
        else
            code = DOORBELL(copy_async, h, to.buffer, to.offset, from.buffer, from.offset, bytes, order, ticket);
        if (code == DOORBELL_BUSY || code == DOORBELL_FULL)
            usleep(tries < 20 ? 0 : 200);
    } while ((code == DOORBELL_BUSY || code == DOORBELL_FULL) && tries++ < 1000);
    if (code == DOORBELL_OK)
        put_ticket(s, *ticket);
    /* What was submitted continues. */
    if (handle)
        way == 3 ? DOORBELL(ring_free, h, handle) : DOORBELL(transfer_free, h, handle);
    return code;
}

/* Until it is done or can never end. */
static int wait_by_any_way(struct session *s, doorbell_t *h, doorbell_ticket_t ticket)
{
    int code = DOORBELL_TIMEOUT;
    for (int tries = 0; code == DOORBELL_TIMEOUT; tries++) {
        uint64_t timeout = tries > 5 ? DOORBELL_FOREVER : a_timeout(), way = below(7);
        doorbell_ticket_t two[2] = {ticket, ticket};
        size_t index = 9;
        bool done = false;
        doorbell_queue_t queue;
        doorbell_done_t taken[2];
        me->by[2] = (int)way;
        if (way == 0)
            code = DO_IN(ms_of(timeout), wait, doorbell_wait(h, ticket, timeout));
        else if (way == 1)
            code = DO_IN(ms_of(timeout), wait_sleeping, doorbell_wait_sleeping(h, ticket, below(100000), timeout));
        else if (way == 2) {
            code = DO_IN(ms_of(timeout), wait_any, doorbell_wait_any(h, two, 2, timeout, &index));
            if (code == DOORBELL_OK && index > 1)
                complain("wait_any: index %zu", index);
        } else if (way == 3)
            code = DO_IN(ms_of(timeout), wait_all, doorbell_wait_all(h, two, 2, timeout));
        else if (way == 4) {
            code = DOORBELL(poll, h, ticket, &done);
            code = code == DOORBELL_OK && !done ? DOORBELL_TIMEOUT : code;
        } else if (way == 5 && me->streams[s->gpu]) {
            lock_submits(0);
            code = DOORBELL(stream_wait, h, me->streams[s->gpu], ticket);
            unlock_submits();
            if (code == DOORBELL_BUSY || code == DOORBELL_FULL)
                code = DOORBELL_TIMEOUT;
            else if (code == DOORBELL_OK) {
                DO(cuda_synchronize, cuStreamSynchronize(me->streams[s->gpu]));
                code = DOORBELL(poll, h, ticket, &done);
                if (code == DOORBELL_OK && !done)
                    complain("a stream did not wait for a ticket");
            }
        } else if (way == 6 && DOORBELL(queue_create, h, 2, &queue) == DOORBELL_OK) {
            if ((code = DOORBELL(queue_add, h, queue, ticket, ticket + 1)) == DOORBELL_OK) {
                code = DO_IN(FOREVER_MS, queue_wait, doorbell_queue_wait(h, queue, DOORBELL_FOREVER));
                /* (If the session was closed in between, the queue has ended, and nothing is known of the copy.) */
                if (code == DOORBELL_OK && (code = DOORBELL(queue_poll, h, queue, taken, 2, sizeof *taken, &index)) == DOORBELL_OK) {
                    if (index != 1 || taken[0].ticket != ticket || taken[0].user != ticket + 1)
                        complain("queue_poll: %zu submissions", index);
                    code = taken[0].code;
                }
            }
            DOORBELL(queue_free, h, queue);
        }
    }
    return code;
}

/* To the GPU or doorbell's memory and back, perhaps between a graph's kernels. */
static void round_trip(struct session *s, doorbell_t *h)
{
    struct own *own = registered(s, h);
    if (!own)
        return;
    uint64_t bytes = 1 + below(one_in(3) ? 100 : BYTES / 4), pattern = next_random();
    uint8_t *from = me->host[s->gpu] + below(BYTES / 2), *back = me->host[s->gpu] + BYTES + GUARD + below(BYTES / 2);
    doorbell_buffer_t between = one_in(3) ? own->device : own->middle[below(2)];
    struct place middle = {between ? between : own->device, below(BYTES / 2)};
    struct place first = {own->host, (uint64_t)(from - me->host[s->gpu])}, last = {own->host, (uint64_t)(back - me->host[s->gpu])};
    doorbell_ticket_t up = 0, down = 0;
    struct counted *c = NULL;
    int code;
    me->by[0] = me->by[1] = me->by[2] = me->by[3] = -1;
    write_pattern(from, bytes, pattern);
    memset(back - GUARD, 0xee, bytes + 2 * GUARD);
    if (one_in(6) && a_graph(s) && (c = a_count(s, h))) {
        doorbell_step_t steps[] = {copy_step(middle.buffer, middle.offset, own->host, first.offset, bytes, (uint32_t)below(5) & ~3u), launch_step(a_graph(s)),
                                   copy_step(own->host, last.offset, middle.buffer, middle.offset, bytes, 0)};
        doorbell_graph_t chain = 0;
        uint32_t flags = chain_flags();
        if (DOORBELL(chain_create, h, steps, 3, sizeof *steps, flags, &chain) != DOORBELL_OK || !own_words(h, c, chain))
            return;
        me->by[3] = (int)(flags | steps[0].flags << 8);
        atomic_store(&c->graph, chain);
        while ((code = launch(s, h, c, &down, 0)) == DOORBELL_BUSY || code == DOORBELL_FULL)
            usleep(100);
        code = code == DOORBELL_OK ? wait_by_any_way(s, h, down) : code;
        if (code == DOORBELL_OK) {
            atomic_fetch_add(&c->done, c->kernels);
            check_count(c);
        }
        DOORBELL(graph_free, h, chain);
    } else {
        doorbell_order_t order;
        code = copy_by(s, h, middle, first, bytes, from, NULL, &up);
        int ordered = up && below(2);
        if (code == DOORBELL_OK && up && !ordered)
            code = wait_by_any_way(s, h, up);
        order = doorbell_after(&up, 1);
        if (code == DOORBELL_OK)
            code = copy_by(s, h, last, middle, bytes, NULL, ordered ? &order : NULL, &down);
        if (code == DOORBELL_OK && down)
            code = wait_by_any_way(s, h, down);
    }
    if (code != DOORBELL_OK) {
        if (code == DOORBELL_CLOSED)
            wait_for_close(s, h);
        else
            give_up(s, own);
        if (code == DOORBELL_STOPPED)
            atomic_store(&s->dead, 1);
        return;
    }
    {
        char what[200];
        snprintf(what, sizeof what, "a copy on session %ld (up by %d, ordered or down by %d, waited by %d, chain's flags %#x, tickets %llx and %llx)", (long)(s - sessions),
                 me->by[0], me->by[1], me->by[2], (unsigned)me->by[3], (unsigned long long)up, (unsigned long long)down);
        compare(back, bytes, pattern, what);
    }
    for (int n = 0; n < GUARD; n++)
        if (back[n - GUARD] != 0xee || back[bytes + (uint64_t)n] != 0xee)
            complain("a copy of %llu bytes wrote outside", (unsigned long long)bytes);
}

/* A copy that waits for a word, and what is ordered after it. Sometimes its memory is freed meanwhile: then its lane is stopped. */
static void held_copy(struct session *s, doorbell_t *h)
{
    struct own *own = registered(s, h);
    if (!own)
        return;
    int end = one_in(25) ? 1 + (int)below(2) : 0, code;
    volatile uint32_t *word = (volatile uint32_t *)(me->host[s->gpu] + 3 * BYTES);
    void *memory = NULL;
    doorbell_buffer_t buffer = 0;
    doorbell_ticket_t held = 0, behind = 0;
    uint64_t pattern = next_random();
    if (CUDA(cuMemHostAlloc(&memory, 4096, 0)) != 0)
        return;
    write_pattern(memory, 4096, pattern);
    *word = 0;
    doorbell_order_t order = doorbell_order();
    order.wait_buffer = own->host;
    order.wait_offset = 3 * BYTES;
    order.wait_value = 1;
    if (DOORBELL(buffer_register, h, memory, 4096, &buffer) == DOORBELL_OK) {
        doorbell_piece_t piece = {buffer, 0, own->device, 0, 2048};
        doorbell_order_t after = doorbell_after(&held, 1);
        code = DOORBELL(copy_batch_async, h, &piece, 1, sizeof piece, &order, &held);
        if (code == DOORBELL_OK) {
            put_ticket(s, held);
            if (DOORBELL(copy_async, h, own->device, BYTES, own->host, 0, 64, &after, &behind) == DOORBELL_OK)
                put_ticket(s, behind);
            struct counted *c = a_graph(s);
            if (c && one_in(2)) {
                doorbell_graph_t graph = atomic_load(&c->graph);
                atomic_fetch_add(&c->attempted, c->kernels);
                if (DO(graph_launch_ordered, doorbell_graph_launch(h, graph, &after, &behind)) == DOORBELL_OK)
                    put_ticket(s, behind);
                else
                    atomic_fetch_sub(&c->attempted, c->kernels);
            }
            code = DO_IN(3, wait, doorbell_wait(h, held, below(3 * MS)));
            if (code == DOORBELL_OK)
                complain("a copy did not wait for its word");
            write_pattern(memory, 4096, pattern);
            if (end == 1 && DOORBELL(buffer_free, h, buffer) == DOORBELL_OK)
                buffer = 0;
            else if (end == 2) {
                /* It waits for launches first, which may be ordered after this copy. */
                atomic_store(&me->release_word, word);
                atomic_store(&me->release_at, now() + 1500 * MS);
                DO(cuda_free, cuMemFreeHost(memory));
                memory = NULL;
            }
            if (end)
                atomic_store(&s->dead, 1);
        }
        atomic_store(&me->release_at, 0);
        *word = 1;
        code = code == DOORBELL_OK || code == DOORBELL_TIMEOUT ? wait_by_any_way(s, h, held) : code;
        if (end == 1 && buffer == 0) {
            usleep((useconds_t)below(2000));
            compare(memory, 4096, pattern, "memory that was unpinned under a held copy");
        }
        if (end || code != DOORBELL_OK) {
            if (code == DOORBELL_CLOSED)
                wait_for_close(s, h);
            give_up(s, own);
        }
        if (buffer)
            DOORBELL(buffer_free, h, buffer);
    }
    *word = 1;
    if (memory)
        DO(cuda_free, cuMemFreeHost(memory));
}

/* A loop of a few frames. Other threads may ask for its statistics, stop it or free it. */
static void a_loop(struct session *s, doorbell_t *h)
{
    doorbell_buffer_t in = 0, out = 0, video = 0;
    doorbell_graph_t chain = 0;
    doorbell_loop_t loop = 0;
    doorbell_loop_options_t options = {.size = sizeof options};
    struct counted *c = a_count(s, h);
    uint32_t data[64], back[64];
    if (c && DOORBELL(buffer_create, h, DOORBELL_HOST, BYTES, &in, NULL) == DOORBELL_OK && DOORBELL(buffer_create, h, DOORBELL_HOST, BYTES, &out, NULL) == DOORBELL_OK
        && DOORBELL(buffer_create, h, DOORBELL_VIDEO, BYTES, &video, NULL) == DOORBELL_OK) {
        doorbell_step_t steps[] = {copy_step(video, 0, in, 0, sizeof data, (uint32_t)below(4) == 3 ? 4 : 0), launch_step(a_graph(s)), copy_step(out, 0, video, 0, sizeof data, 0)};
        if (DOORBELL(chain_create, h, steps, 3, sizeof *steps, chain_flags(), &chain) == DOORBELL_OK && !own_words(h, c, chain))
            chain = 0;
    }
    options.chain = chain;
    options.input = in;
    options.output = out;
    options.input_bytes = options.output_bytes = sizeof data;
    options.period_ns = below(2) * below(2 * MS);
    options.take = (uint32_t)below(2);
    options.late = (uint32_t)below(one_in(20) ? 9 : 3);
    options.flags = (uint32_t)below(4);
    options.signal_each = (uint32_t)below(3);
    if (chain && DOORBELL(loop_create, h, &options, &loop) == DOORBELL_OK) {
        for (int n = 0; n < POOL; n++)
            atomic_store(&s->pool[LOOP][n], loop);
        for (uint32_t n = 0; n < 20; n++) {
            doorbell_result_t result = {.size = sizeof result};
            uint64_t number, timeout = below(3 * MS);
            bool there = false;
            for (uint32_t i = 0; i < 64; i++)
                data[i] = n * 1000 + i;
            DOORBELL(loop_put, h, loop, data, sizeof data + one_in(50), n, 0, n + 7, &number);
            DO_IN(ms_of(timeout), loop_wait, doorbell_loop_wait(h, loop, timeout));
            while (DOORBELL(loop_next, h, loop, &result, back, sizeof back, &there) == DOORBELL_OK && there) {
                int right = result.refused || (result.tag == result.sequence + 7 && result.sequence < 20);
                for (uint32_t i = 0; i < 64 && !result.refused; i++)
                    right &= back[i] == (uint32_t)result.sequence * 1000 + i;
                if (!right)
                    complain("a loop's result: frame %llu, sequence %llu, words %u and %u", (unsigned long long)result.frame, (unsigned long long)result.sequence, back[0], back[63]);
            }
        }
        DOORBELL(loop_free, h, loop);
    }
    if (chain)
        DOORBELL(graph_free, h, chain);
    for (int n = 0; n < 3; n++)
        if ((doorbell_buffer_t[]){in, out, video}[n])
            DOORBELL(buffer_free, h, (doorbell_buffer_t[]){in, out, video}[n]);
}

static void a_loop_call(struct session *s, doorbell_t *h)
{
    doorbell_loop_statistics_t statistics = {.size = sizeof statistics};
    doorbell_loop_t loop = pick(s, LOOP);
    int32_t descriptor;
    char text[100];
    switch (below(6)) {
    case 0: DOORBELL(loop_stop, h, loop); break;
    case 1: DOORBELL(loop_free, h, loop); break;
    case 2: DOORBELL(loop_descriptor, h, loop, &descriptor); break;
    default: DOORBELL(loop_statistics, h, loop, &statistics, text, below(sizeof text));
    }
}

#endif

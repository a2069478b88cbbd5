/* Of random.c: handles that all threads share, orders, and memory that ends while it is used. */
#ifndef RANDOM_MEMORY_H
#define RANDOM_MEMORY_H

#include "calls.h"


static uint64_t pick(struct session *s, enum kind kind)
{
    uint64_t how = below(40);
    if (how == 0)
        return next_random();
    if (how == 1)
        kind = below(POOLS);
    if (how == 2)
        s = &sessions[below(session_count)];
    return atomic_load(&s->pool[kind][below(POOL)]);
}

static void free_handle(doorbell_t *h, enum kind kind, uint64_t handle)
{
    switch (kind) {
    case BUFFER: DOORBELL(buffer_free, h, handle); break;
    case TRANSFER: case BYTES_TRANSFER: DOORBELL(transfer_free, h, handle); break;
    case RING: DOORBELL(ring_free, h, handle); break;
    case QUEUE: DOORBELL(queue_free, h, handle); break;
    case LOOP: DOORBELL(loop_free, h, handle); break;
    default: DOORBELL(message_free, h, handle);
    }
}

/* The handle that was in its place is freed, whoever uses it. */
static void put(struct session *s, doorbell_t *h, enum kind kind, uint64_t handle)
{
    uint64_t was = atomic_exchange(&s->pool[kind][below(POOL)], handle);
    if (was)
        free_handle(h, kind, was);
}

static void put_ticket(struct session *s, uint64_t ticket) { atomic_store(&s->tickets[below(TICKETS)], ticket); }
static uint64_t a_ticket(struct session *s)
{
    return one_in(50) ? next_random() : atomic_load(&(one_in(50) ? &sessions[below(session_count)] : s)->tickets[below(TICKETS)]);
}

static doorbell_buffer_t a_block(struct session *s, int kept)
{
    struct block *b = &blocks[s->gpu][below(BLOCKS)];
    if (kept)
        atomic_store(&b->kept, 1);
    return atomic_load(&b->handles[s->number]);
}
static doorbell_buffer_t a_buffer(struct session *s, int kept) { return below(3) ? a_block(s, kept) : pick(s, BUFFER); }

static uint64_t a_timeout(void) { return one_in(30) ? DOORBELL_FOREVER : one_in(4) ? 0 : below(one_in(5) ? 50 * MS : 300000); }
static uint64_t ms_of(uint64_t timeout) { return timeout == DOORBELL_FOREVER ? FOREVER_MS : timeout / MS; }

struct order { doorbell_order_t order; doorbell_ticket_t tickets[65]; int locked; };
/* An order of any kind, or null; with a stream or an event CUDA submits. */
static doorbell_order_t *an_order(struct session *s, struct order *o)
{
    o->locked = 0;
    uint64_t how = below(20);
    if (how < 11)
        return NULL;
    o->order = doorbell_order();
    if (how < 15) {
        o->order.ticket_count = 1 + below(one_in(20) ? 65 : 3);
        for (uint32_t i = 0; i < o->order.ticket_count; i++)
            o->tickets[i] = atomic_load(&s->tickets[below(TICKETS)]);
        o->order.tickets = o->tickets;
    } else if (how < 19 && me->streams[s->gpu]) {
        lock_submits(0);
        o->locked = me->asks = 1;
        if (how == 18) {
            CUDA(cuEventRecord(me->events[s->gpu], me->streams[s->gpu]));
            o->order.event = me->events[s->gpu];
        } else {
            o->order.flags = how == 17 ? DOORBELL_ORDER_STREAM | DOORBELL_ORDER_STREAM_WAITS : DOORBELL_ORDER_STREAM;
            o->order.stream = me->streams[s->gpu];
        }
    } else if (one_in(3))
        o->order.flags = 1u << (2 + below(30));
    else if (one_in(2))
        o->order.size = below(200);
    return &o->order;
}
static void submitted(struct session *s, struct order *o, int code, doorbell_ticket_t ticket)
{
    if (o->locked)
        unlock_submits();
    if (code == DOORBELL_OK)
        put_ticket(s, ticket);
    if (code == DOORBELL_STOPPED || code == DOORBELL_KILLED)
        atomic_store(&s->dead, 1);
}

/* ---- memory that ends ---- */

static void begin_block(int gpu, struct block *b)
{
    void *at = NULL;
    address_t device = 0;
    int code;
    b->memory = below(3);
    if (b->memory == DEVICE) {
        code = CUDA(cuMemAlloc(&device, BYTES));
        at = (void *)(uintptr_t)device;
    } else if (b->memory == PINNED)
        code = CUDA(cuMemHostAlloc(&at, BYTES, 0));
    else {
        at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        /* Otherwise a write after a fork might get another page than the GPU's. */
        madvise(at, BYTES, MADV_DONTFORK);
        code = CUDA(cuMemHostRegister(at, BYTES, 0));
    }
    if (code != 0)
        return;
    b->at = at;
    b->quiet = 1;
    b->unregistered = 0;
    b->pattern = next_random();
    if (b->memory != DEVICE) {
        write_pattern(at, BYTES, b->pattern);
        return;
    }
    uint8_t *bytes = malloc(BYTES);
    write_pattern(bytes, BYTES, b->pattern);
    lock_submits(0);
    CUDA(cuMemcpyHtoD((address_t)(uintptr_t)b->at, bytes, BYTES));
    unlock_submits();
    free(bytes);
    (void)gpu;
}

static void check_quiet(struct block *b)
{
    if (b->memory != DEVICE) {
        compare(b->at, BYTES, b->pattern, b->unregistered ? "memory that CUDA unregistered" : "pinned memory that no session has");
        return;
    }
    uint8_t *bytes = malloc(BYTES);
    lock_submits(0);
    if (CUDA(cuMemcpyDtoH(bytes, (address_t)(uintptr_t)b->at, BYTES)) == 0)
        compare(bytes, BYTES, b->pattern, "GPU memory that no session has");
    unlock_submits();
    free(bytes);
}

static void end_block(struct session *s, struct block *b)
{
    int safe = one_in(2);
    for (int n = 0; n < EACH && safe; n++) {
        struct session *other = &sessions[s->gpu * EACH + n];
        doorbell_buffer_t handle = atomic_exchange(&b->handles[n], 0);
        if (handle) {
            int code = DOORBELL(buffer_free, atomic_load(&other->handle), handle);
            /* HANDLE: of a session that is closed. While one is being closed its copies may be pending. */
            safe = code == DOORBELL_OK || code == DOORBELL_HANDLE;
        }
    }
    if (safe && !atomic_load(&b->kept) && b->memory != DEVICE) {
        b->quiet = 1;
        write_pattern(b->at, BYTES, b->pattern = next_random());
        return;
    }
    if (b->memory == DEVICE)
        DO(cuda_free, cuMemFree((address_t)(uintptr_t)b->at));
    else if (b->memory == PINNED)
        DO(cuda_free, cuMemFreeHost(b->at));
    else {
        DO(cuda_free, cuMemHostUnregister(b->at));
        b->quiet = b->unregistered = 1;
        write_pattern(b->at, BYTES, b->pattern = next_random());
    }
    if (b->memory != REGISTERED)
        b->at = NULL;
    /* Handles of freed memory are used, too. */
    for (int n = 0; n < EACH; n++) {
        doorbell_buffer_t handle = atomic_exchange(&b->handles[n], 0);
        struct session *other = &sessions[s->gpu * EACH + n];
        if (handle)
            put(other, atomic_load(&other->handle), BUFFER, handle);
    }
}

static void change_block(struct session *s)
{
    struct block *b = &blocks[s->gpu][below(BLOCKS)];
    if (pthread_mutex_trylock(&b->lock) != 0)
        return;
    if (!b->at)
        begin_block(s->gpu, b);
    else if (b->quiet) {
        check_quiet(b);
        b->quiet = 0;
        atomic_store(&b->kept, 0);
        if (b->unregistered) {
            munmap(b->at, BYTES);
            b->at = NULL;
        }
        for (int n = 0; n < EACH && b->at; n++) {
            doorbell_buffer_t buffer = 0;
            if (one_in(4))
                continue;
            struct session *other = &sessions[s->gpu * EACH + n];
            if (DOORBELL(buffer_register, atomic_load(&other->handle), b->at, BYTES, &buffer) == DOORBELL_OK)
                atomic_store(&b->handles[n], buffer);
        }
    } else
        end_block(s, b);
    pthread_mutex_unlock(&b->lock);
}

#endif

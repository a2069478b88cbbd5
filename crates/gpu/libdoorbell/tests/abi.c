/* What must be an error, and never a crash. Runs on the software GPU; prints nothing unless something is wrong. */
#include "expect.h"
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static doorbell_t *doorbell;

static doorbell_buffer_t host, video;

static void *from_another_thread(void *unused)
{
    (void)unused;
    for (int n = 0; n < 20; n++)
        EXPECT(doorbell_copy(doorbell, video, 0, host, 0, 256, DOORBELL_FOREVER), DOORBELL_OK);
    return NULL;
}

static void in_a_child(doorbell_transfer_t transfer, doorbell_ring_t ring, doorbell_ticket_t ticket)
{
    doorbell_frame_t frame = {.size = sizeof frame};
    bool done;
    doorbell_buffer_t buffer;
    EXPECT(doorbell_transfer_async(doorbell, transfer, NULL, &ticket), DOORBELL_FORKED);
    EXPECT(doorbell_poll(doorbell, ticket, &done), DOORBELL_FORKED);
    EXPECT(doorbell_ring_next(doorbell, ring, &frame), DOORBELL_FORKED);
    EXPECT(doorbell_copy(doorbell, video, 0, host, 0, 8, DOORBELL_FOREVER), DOORBELL_FORKED);
    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_HOST, 64, &buffer, NULL), DOORBELL_FORKED);
    EXPECT(doorbell_buffer_free(doorbell, host), DOORBELL_FORKED);
    EXPECT(doorbell_free(doorbell), DOORBELL_FORKED);
    EXPECT(doorbell_create(NULL, &doorbell), DOORBELL_FORKED);
    _exit(failures != 0);
}

/* Each prepared copy takes a file descriptor. Without one it is an error, and what there is goes on working. */
static void without_descriptors(void)
{
    enum { ROOM = 8 };
    struct rlimit limit, low;
    doorbell_transfer_t made[ROOM], one;
    doorbell_ticket_t ticket;
    int count = 0, code = DOORBELL_OK, free_one = dup(0);
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)free_one + ROOM;
    EXPECT(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (count < ROOM && (code = doorbell_transfer_create(doorbell, video, 0, host, 0, 64, &made[count])) == DOORBELL_OK)
        count++;
    EXPECT(code, DOORBELL_DRIVER);
    EXPECT(doorbell_transfer_create(doorbell, video, 0, host, 0, 64, &one), DOORBELL_DRIVER);
    EXPECT(doorbell_copy(doorbell, video, 0, host, 0, 64, DOORBELL_FOREVER), DOORBELL_OK);
    if (count > 0) {
        EXPECT(doorbell_transfer_async(doorbell, made[0], NULL, &ticket), DOORBELL_OK);
        EXPECT(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), DOORBELL_OK);
    }
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT(doorbell_transfer_create(doorbell, video, 0, host, 0, 64, &one), DOORBELL_OK);
    EXPECT(doorbell_transfer_free(doorbell, one), DOORBELL_OK);
    while (count > 0)
        EXPECT(doorbell_transfer_free(doorbell, made[--count]), DOORBELL_OK);
    close(free_one);
}

static void *closes(void *closing)
{
    EXPECT(doorbell_free(closing), DOORBELL_OK);
    return NULL;
}

/* While a session waits for its last copy, calls on it return at once. */
static void while_it_closes(const doorbell_options_t *options)
{
    doorbell_t *closing = NULL;
    doorbell_buffer_t words = 0;
    doorbell_ticket_t held = 0;
    pthread_t thread;
    void *pointer = NULL;
    bool done;
    EXPECT(doorbell_create(options, &closing), DOORBELL_OK);
    EXPECT(doorbell_buffer_create(closing, DOORBELL_HOST, 4096, &words, &pointer), DOORBELL_OK);
    doorbell_piece_t piece = {words, 64, words, 128, 64};
    word_t word = {words, 0, 1};
    EXPECT(doorbell_copy_batch_async(closing, &piece, 1, sizeof piece, WORDS(word, no_word), &held), DOORBELL_OK);
    if (pthread_create(&thread, NULL, closes, closing) != 0)
        return;
    while (doorbell_poll(closing, held, &done) == DOORBELL_OK)
        ;
    time_t start = time(NULL);
    EXPECT(doorbell_buffer_get(closing, words, &pointer, NULL), DOORBELL_CLOSED);
    /* (Otherwise the word is not there any more.) */
    if (time(NULL) - start < 5)
        __atomic_store_n((uint32_t *)pointer, 1, __ATOMIC_SEQ_CST);
    else
        EXPECT(DOORBELL_TIMEOUT, DOORBELL_CLOSED);
    pthread_join(thread, NULL);
}

/* Whatever was opened since: a freed pointer is no other session, and neither is a number near it. */
static void freed_for_long(const doorbell_options_t *options, int openings)
{
    doorbell_t *first = NULL, *place = NULL, *later = NULL;
    doorbell_buffer_t old = 0, buffer = 0;
    doorbell_ticket_t ticket = 0;
    bool done;
    EXPECT(doorbell_create(options, &first), DOORBELL_OK);
    EXPECT(doorbell_buffer_create(first, DOORBELL_HOST, 4096, &old, NULL), DOORBELL_OK);
    EXPECT(doorbell_copy_async(first, old, 0, old, 64, 8, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_free(first), DOORBELL_OK);
    /* The later ones are not in the first one's place. */
    EXPECT(doorbell_create(options, &place), DOORBELL_OK);
    for (int n = 2; n <= openings; n++) {
        EXPECT(doorbell_create(options, &later), DOORBELL_OK);
        EXPECT(later == first, 0);
        EXPECT(doorbell_poll(first, ticket, &done), DOORBELL_CLOSED);
        EXPECT(doorbell_buffer_create(first, DOORBELL_HOST, 4096, &buffer, NULL), DOORBELL_CLOSED);
        EXPECT(doorbell_free(first), DOORBELL_CLOSED);
        /* Handles have 8 bits of the opening. */
        if (n % 256 == 0) {
            EXPECT(doorbell_buffer_create(later, DOORBELL_HOST, 4096, &buffer, NULL), DOORBELL_OK);
            EXPECT(doorbell_copy_async(later, buffer, 0, buffer, 64, 8, NULL, &(doorbell_ticket_t){0}), DOORBELL_OK);
            EXPECT(doorbell_buffer_free(later, old), DOORBELL_HANDLE);
            EXPECT(doorbell_poll(later, ticket, &done), DOORBELL_HANDLE);
        }
        EXPECT(doorbell_free((doorbell_t *)((uintptr_t)later + 64)), DOORBELL_HANDLE);
        EXPECT(doorbell_free(later), DOORBELL_OK);
        if (failures)
            return;
    }
    EXPECT(doorbell_free(place), DOORBELL_OK);
}

/* A size that was never set, in a struct at the end of the memory. */
static void sizes_that_none_has(doorbell_options_t options)
{
    size_t sizes[] = {0, 513, (size_t)1 << 31, (size_t)1 << 40, (size_t)1 << 63, SIZE_MAX};
    doorbell_ticket_t ticket;
    doorbell_loop_t loop;
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(munmap(page + 4096, 4096), 0);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        doorbell_order_t *order = (doorbell_order_t *)(page + 4096 - sizeof *order);
        order->size = sizes[n];
        EXPECT(doorbell_copy_async(doorbell, video, 0, host, 0, 8, order, &ticket), DOORBELL_ARGUMENT);
        EXPECT(doorbell_copy_batch_async(doorbell, (doorbell_piece_t *)page, 1, sizes[n], NULL, &ticket), DOORBELL_ARGUMENT);
        EXPECT(doorbell_chain_create(doorbell, (doorbell_step_t *)page, 1, sizes[n], 0, &ticket), DOORBELL_ARGUMENT);
        doorbell_pages_t *pages = (doorbell_pages_t *)(page + 4096 - sizeof *pages);
        pages->size = sizes[n];
        EXPECT(doorbell_pages_async(doorbell, &(doorbell_part_t){video, 0, host, 0}, 1, sizeof(doorbell_part_t), pages, NULL, &ticket), DOORBELL_ARGUMENT);
        EXPECT(doorbell_pages_async(doorbell, (doorbell_part_t *)page, 1, sizes[n], &(doorbell_pages_t){.size = sizeof *pages, .bytes = 8, .count = 1}, NULL, &ticket), DOORBELL_ARGUMENT);
        options.size = sizes[n];
        memcpy(page + 4096 - sizeof options, &options, sizeof options);
        EXPECT(doorbell_create((doorbell_options_t *)(page + 4096 - sizeof options), &(doorbell_t *){NULL}), DOORBELL_ARGUMENT);
        doorbell_loop_options_t *loops = (doorbell_loop_options_t *)(page + 4096 - sizeof *loops);
        loops->size = sizes[n];
        EXPECT(doorbell_loop_create(doorbell, loops, &loop), DOORBELL_ARGUMENT);
    }
    /* Counts: more than any call takes. */
    size_t index;
    EXPECT(doorbell_wait_any(doorbell, (doorbell_ticket_t *)page, (size_t)1 << 40, 0, &index), DOORBELL_LIMIT);
    EXPECT(doorbell_wait_all(doorbell, (doorbell_ticket_t *)page, SIZE_MAX, 0), DOORBELL_LIMIT);
    EXPECT(doorbell_copy_batch_async(doorbell, (doorbell_piece_t *)page, (1 << 24) + 1, sizeof(doorbell_piece_t), NULL, &ticket), DOORBELL_LIMIT);
    EXPECT(doorbell_chain_create(doorbell, (doorbell_step_t *)page, 257, sizeof(doorbell_step_t), 0, &ticket), DOORBELL_LIMIT);
    EXPECT(munmap(page, 4096), 0);
}

int main(int argc, char **argv)
{
    long cycles = argc > 1 ? atol(argv[1]) : 20;
    doorbell_options_t options;
    doorbell_ticket_t ticket = 0;
    doorbell_transfer_t transfer = 0, bytes = 0;
    doorbell_ring_t ring = 0;
    doorbell_frame_t frame = {.size = sizeof(doorbell_frame_t)};
    void *pointer = NULL;
    uint64_t length = 0, left = 7;
    bool done = false;
    char data[56] = {0};

    if (doorbell_version() >> 16 != 0 || doorbell_error_text(-1)[0] == 0)
        failures++;
    /* No session. */
    EXPECT(doorbell_free(NULL), DOORBELL_OK);
    EXPECT(doorbell_buffer_register(NULL, data, 8, &host), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_async(NULL, 1, NULL, &ticket), DOORBELL_ARGUMENT);
    EXPECT(doorbell_wait((doorbell_t *)data, 1, 0), DOORBELL_HANDLE);
    EXPECT(doorbell_free((doorbell_t *)data), DOORBELL_HANDLE);
    EXPECT(doorbell_create(NULL, NULL), DOORBELL_ARGUMENT);

    memset(&options, 0, sizeof options);
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_ARGUMENT); /* no size */
    options.size = sizeof options;
    options.kind = 9;
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_ARGUMENT);
    options.kind = DOORBELL_SOFTWARE;
    options.flags = 8;
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_ARGUMENT);
    options.flags = DOORBELL_OWN_PROFILE;
    options.profile = "/nowhere/profile.toml";
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_ARGUMENT); /* one or the other */
    options.flags = 0;
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_UNAVAILABLE); /* no such file */
    options.profile = "";
    struct {
        doorbell_options_t known;
        uint64_t later;
    } longer;
    memset(&longer, 0, sizeof longer);
    longer.known = options;
    longer.known.size = sizeof longer;
    longer.later = 1;
    EXPECT(doorbell_create(&longer.known, &doorbell), DOORBELL_ARGUMENT); /* set, and not known here */
    longer.later = 0;
    longer.known.kind = DOORBELL_SOFTWARE;
    EXPECT(doorbell_create(&longer.known, &doorbell), DOORBELL_OK);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    options.size = sizeof options;
    options.flags = 0;
    options.lanes = 65;
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_ARGUMENT);
    options.lanes = 1;
    options.gpu = 7;
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_DRIVER); /* there is one GPU */
    options.gpu = 0;
    for (long n = 0; n < cycles; n++) {
        EXPECT(doorbell_create(&options, &doorbell), DOORBELL_OK);
        doorbell_t *other;
        doorbell_buffer_t buffer;
        EXPECT(doorbell_create(&options, &other), DOORBELL_OK);
        EXPECT(doorbell_buffer_create(other, DOORBELL_HOST, 64, &buffer, NULL), DOORBELL_OK);
        EXPECT(doorbell_buffer_free(doorbell, buffer), DOORBELL_HANDLE); /* the other's */
        EXPECT(doorbell_buffer_free(other, buffer), DOORBELL_OK);
        EXPECT(doorbell_free(other), DOORBELL_OK);
        EXPECT(doorbell_free(other), DOORBELL_CLOSED);
        EXPECT(doorbell_free(doorbell), DOORBELL_OK);
        if (failures)
            return 1;
    }
    freed_for_long(&options, cycles > 100 ? 260 : 70);
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_OK);

    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_HOST, 4096, &host, &pointer), DOORBELL_OK);
    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_VIDEO, 4096, &video, NULL), DOORBELL_OK);
    EXPECT(doorbell_buffer_create(doorbell, 2, 4096, &video, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_buffer_create(doorbell, DOORBELL_HOST, 4096, NULL, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_buffer_register(doorbell, data, 8, &ring), DOORBELL_UNAVAILABLE); /* no CUDA */
    EXPECT(doorbell_buffer_get(doorbell, host, NULL, &length), DOORBELL_OK);
    EXPECT(doorbell_buffer_get(doorbell, video + 1, &pointer, NULL), DOORBELL_HANDLE);
    if (length != 4096)
        failures++;

    /* Null, stale, of another kind, past the end. */
    EXPECT(doorbell_transfer_create(doorbell, video, 0, host, 0, 64, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_create(doorbell, video, 0, host, 0, 0, &transfer), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_create(doorbell, video, 4090, host, 0, 64, &transfer), DOORBELL_OUTSIDE);
    EXPECT(doorbell_transfer_create(doorbell, video, 0, 0, 0, 64, &transfer), DOORBELL_HANDLE);
    EXPECT(doorbell_transfer_create(doorbell, video, 0, host, 0, 64, &transfer), DOORBELL_OK);
    EXPECT(doorbell_transfer_create_bytes(doorbell, video, 0, 1 << 20, &bytes), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_create_bytes(doorbell, video, 0, sizeof data, &bytes), DOORBELL_OK);
    EXPECT(doorbell_transfer_async(doorbell, transfer, NULL, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_async(doorbell, host, NULL, &ticket), DOORBELL_HANDLE);
    EXPECT(doorbell_transfer_async(doorbell, UINT64_MAX, NULL, &ticket), DOORBELL_HANDLE);
    EXPECT(doorbell_transfer_async(doorbell, bytes, NULL, &ticket), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_bytes_async(doorbell, bytes, NULL, sizeof data, NULL, &ticket), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_bytes_async(doorbell, bytes, data, 8, NULL, &ticket), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_bytes_async(doorbell, transfer, data, sizeof data, NULL, &ticket), DOORBELL_ARGUMENT);
    EXPECT(doorbell_transfer_bytes_async(doorbell, bytes, data, sizeof data, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), DOORBELL_OK);
    EXPECT(doorbell_transfer_async(doorbell, transfer, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), DOORBELL_OK);
    EXPECT(doorbell_poll(doorbell, ticket, &done), DOORBELL_OK);
    EXPECT(doorbell_poll(doorbell, ticket, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_pending(doorbell, ticket, &left), DOORBELL_OK);
    if (!done || left != 0)
        failures++;
    EXPECT(doorbell_wait(doorbell, ticket + 1, 0), DOORBELL_HANDLE);
    EXPECT(doorbell_copy_batch_async(doorbell, NULL, 1, sizeof(doorbell_piece_t), NULL, &ticket), DOORBELL_ARGUMENT);
    {
        uint32_t to_index[] = {3, 1, 2}, twice[] = {3, 1, 3}, beyond[] = {0, 1, 1u << 30};
        doorbell_part_t part = {video, 0, host, 0};
        doorbell_pages_t good = {.size = sizeof good, .bytes = 64, .to_index = to_index, .count = 3, .index_size = 4, .flags = DOORBELL_PAGES_DISTINCT};
        doorbell_pages_t some[8] = {good, good, good, good, good, good, good, good};
        some[0].flags = 2, some[1].index_size = 2, some[2].bytes = 0, some[3].count = 0, some[4].to_index = twice;
        some[5].to_index = beyond, some[6].count = SIZE_MAX, some[7].to_index = (char *)to_index + 1;
        int codes[] = {DOORBELL_ARGUMENT, DOORBELL_ARGUMENT, DOORBELL_ARGUMENT, DOORBELL_ARGUMENT, DOORBELL_ARGUMENT, DOORBELL_OUTSIDE, DOORBELL_LIMIT, DOORBELL_ARGUMENT};
        for (int n = 0; n < 8; n++)
            EXPECT(doorbell_pages_async(doorbell, &part, 1, sizeof part, &some[n], NULL, &ticket), codes[n]);
        EXPECT(doorbell_pages_async(doorbell, &part, 1, sizeof part, NULL, NULL, &ticket), DOORBELL_ARGUMENT);
        EXPECT(doorbell_pages_async(doorbell, NULL, 1, sizeof part, &good, NULL, &ticket), DOORBELL_ARGUMENT);
        EXPECT(doorbell_pages_async(doorbell, &part, 0, sizeof part, &good, NULL, &ticket), DOORBELL_ARGUMENT);
        EXPECT(doorbell_pages_async(doorbell, &part, 1, sizeof part, &good, NULL, &ticket), DOORBELL_OK);
        EXPECT(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), DOORBELL_OK);
    }
    EXPECT(doorbell_copy_batch_async(doorbell, NULL, 0, sizeof(doorbell_piece_t), NULL, &ticket), DOORBELL_ARGUMENT);
    EXPECT(doorbell_copy_async(doorbell, video, 0, host, 0, UINT64_MAX, NULL, &ticket), DOORBELL_OUTSIDE);

    uint32_t way = 7;
    char why[12] = "ffffffffffe";
    EXPECT(doorbell_copy_explain(doorbell, video, host, 64, true, &way, why, sizeof why), DOORBELL_OK);
    if (way != DOORBELL_BY_ENGINE || strcmp(why, "a copy engi") != 0)
        failures++;
    EXPECT(doorbell_copy_explain(doorbell, video, host, 64, false, NULL, NULL, 0), DOORBELL_OK);
    EXPECT(doorbell_copy_explain(doorbell, video, host, 0, false, &way, NULL, 0), DOORBELL_ARGUMENT);
    EXPECT(doorbell_copy_explain(doorbell, video, transfer, 8, false, &way, NULL, 0), DOORBELL_HANDLE);

    sizes_that_none_has(options);

    /* A word that the program writes holds a copy back. */
    word_t gate = {host, 2048, 1}, odd = {host, 2050, 1}, told = {host, 2052, 5};
    doorbell_piece_t piece = {video, 0, host, 0, 64};
    volatile uint32_t *words = (volatile uint32_t *)((char *)pointer + 2048);
    EXPECT(doorbell_copy_batch_async(doorbell, &piece, 1, sizeof(doorbell_piece_t), WORDS(odd, no_word), &ticket), DOORBELL_DRIVER);
    EXPECT(doorbell_copy_batch_async(doorbell, &piece, 1, sizeof(doorbell_piece_t), WORDS(gate, told), &ticket), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, ticket, 2000000), DOORBELL_TIMEOUT);
    words[0] = 1;
    EXPECT(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), DOORBELL_OK);
    if (words[1] != 5)
        failures++;

    EXPECT(doorbell_copy_batch_async(doorbell, &piece, 1, sizeof(doorbell_piece_t), AFTER_STREAM(NULL), &ticket), DOORBELL_UNAVAILABLE); /* no CUDA */
    EXPECT(doorbell_copy_batch_async(doorbell, &piece, 1, sizeof(doorbell_piece_t), AFTER_STREAM(NULL), NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_stream_wait(doorbell, NULL, ticket), DOORBELL_UNAVAILABLE);
    EXPECT(doorbell_stream_wait(doorbell, NULL, host), DOORBELL_HANDLE);

    /* A queue, and its descriptor. */
    doorbell_queue_t queue = 0;
    doorbell_done_t done_ones[4];
    doorbell_ticket_t several[2];
    size_t count = 9, index = 9;
    struct pollfd polled = {.events = POLLIN};
    EXPECT(doorbell_queue_create(doorbell, 0, &queue), DOORBELL_ARGUMENT);
    EXPECT(doorbell_queue_create(doorbell, 2, &queue), DOORBELL_OK);
    EXPECT(doorbell_queue_poll(doorbell, queue, done_ones, 4, sizeof *done_ones, &count), DOORBELL_OK);
    EXPECT(count, 0);
    EXPECT(doorbell_queue_wait(doorbell, queue, 1000), DOORBELL_TIMEOUT);
    EXPECT(doorbell_queue_descriptor(doorbell, queue, &polled.fd), DOORBELL_OK);
    for (int n = 0; n < 2; n++) {
        EXPECT(doorbell_copy_async(doorbell, video, 0, host, 0, 64, NULL, &several[n]), DOORBELL_OK);
        EXPECT(doorbell_queue_add(doorbell, queue, several[n], 70 + (uint64_t)n), DOORBELL_OK);
    }
    EXPECT(doorbell_queue_add(doorbell, queue, several[0], 0), DOORBELL_FULL);
    EXPECT(doorbell_wait_any(doorbell, several, 2, DOORBELL_FOREVER, &index), DOORBELL_OK);
    EXPECT(index < 2, 1);
    EXPECT(doorbell_wait_all(doorbell, several, 2, DOORBELL_FOREVER), DOORBELL_OK);
    EXPECT(doorbell_wait_any(doorbell, several, 0, 0, &index), DOORBELL_ARGUMENT);
    EXPECT(doorbell_wait_sleeping(doorbell, several[1], 0, DOORBELL_FOREVER), DOORBELL_OK);
    EXPECT(doorbell_queue_wait(doorbell, queue, DOORBELL_FOREVER), DOORBELL_OK);
    EXPECT(poll(&polled, 1, 5000), 1);
    EXPECT(doorbell_queue_poll(doorbell, queue, done_ones, 4, 8, &count), DOORBELL_ARGUMENT);
    EXPECT(doorbell_queue_poll(doorbell, queue, done_ones, 4, sizeof *done_ones, &count), DOORBELL_OK);
    EXPECT(count == 2 && done_ones[1].ticket == several[1] && done_ones[1].user == 71 && done_ones[1].code == DOORBELL_OK, 1);
    EXPECT(poll(&polled, 1, 0), 0);
    EXPECT(doorbell_queue_add(doorbell, queue, 5, 0), DOORBELL_HANDLE);
    EXPECT(doorbell_queue_remove(doorbell, queue, several[0], &done), DOORBELL_OK);
    EXPECT(done, 0);
    EXPECT(doorbell_queue_free(doorbell, queue), DOORBELL_OK);
    EXPECT(doorbell_queue_free(doorbell, queue), DOORBELL_HANDLE);
    EXPECT(doorbell_queue_wait(doorbell, queue, 0), DOORBELL_HANDLE);

    EXPECT(doorbell_ring_create(doorbell, video, 0, host, 0, 1024, 1, &ring), DOORBELL_ARGUMENT);
    EXPECT(doorbell_ring_create(doorbell, video, 0, host, 0, 1024, 4, &ring), DOORBELL_OK);
    EXPECT(doorbell_ring_async(doorbell, ring, NULL, &ticket), DOORBELL_ARGUMENT);
    EXPECT(doorbell_ring_next(doorbell, ring, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_ring_next(doorbell, ring, &frame), DOORBELL_OK);
    EXPECT(doorbell_ring_async(doorbell, ring, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_ring_free(doorbell, ring), DOORBELL_OK);
    EXPECT(doorbell_ring_free(doorbell, ring), DOORBELL_HANDLE);

    doorbell_message_t message = 0;
    uint32_t number = 0;
    EXPECT(doorbell_message_create(doorbell, host, 0, host, 64, &message), DOORBELL_ARGUMENT);
    EXPECT(doorbell_message_create(doorbell, video, 8, host, 64, &message), DOORBELL_ARGUMENT);
    EXPECT(doorbell_message_create(doorbell, video, 0, host, 64, NULL), DOORBELL_ARGUMENT);
    EXPECT(doorbell_message_create(doorbell, video, 0, host, 64, &message), DOORBELL_OK);
    EXPECT(doorbell_message_send(doorbell, message, data, 57, &number), DOORBELL_ARGUMENT);
    EXPECT(doorbell_message_send(doorbell, message, NULL, 8, &number), DOORBELL_ARGUMENT);
    EXPECT(doorbell_message_send(doorbell, message, data, sizeof data, &number), DOORBELL_OK);
    EXPECT(doorbell_message_send(doorbell, message, NULL, 0, NULL), DOORBELL_OK);
    EXPECT(doorbell_message_wait(doorbell, message, number, NULL, 0), DOORBELL_TIMEOUT); /* nobody looks */
    EXPECT(doorbell_message_wait(doorbell, ring, number, NULL, 0), DOORBELL_HANDLE);
    if (number != 1)
        failures++;
    EXPECT(doorbell_message_free(doorbell, message), DOORBELL_OK);
    EXPECT(doorbell_message_free(doorbell, message), DOORBELL_HANDLE);

    pthread_t thread;
    if (pthread_create(&thread, NULL, from_another_thread, NULL) == 0)
        pthread_join(thread, NULL);

    without_descriptors();

    EXPECT(doorbell_ring_create(doorbell, video, 0, host, 0, 1024, 4, &ring), DOORBELL_OK);
    pid_t child = fork();
    if (child == 0)
        in_a_child(transfer, ring, ticket);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0)
        failures++;

    /* Freed under a transfer; then everything ends. */
    EXPECT(doorbell_buffer_free(doorbell, host), DOORBELL_OK);
    EXPECT(doorbell_buffer_free(doorbell, host), DOORBELL_HANDLE);
    EXPECT(doorbell_transfer_async(doorbell, transfer, NULL, &ticket), DOORBELL_FREED);
    EXPECT(doorbell_transfer_free(doorbell, transfer), DOORBELL_OK);
    EXPECT(doorbell_transfer_free(doorbell, transfer), DOORBELL_HANDLE);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    EXPECT(doorbell_transfer_bytes_async(doorbell, bytes, data, sizeof data, NULL, &ticket), DOORBELL_CLOSED);
    EXPECT(doorbell_wait(doorbell, ticket, 0), DOORBELL_CLOSED);
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_OK);
    EXPECT(doorbell_transfer_bytes_async(doorbell, bytes, data, sizeof data, NULL, &ticket), DOORBELL_HANDLE);
    EXPECT(doorbell_buffer_free(doorbell, video), DOORBELL_HANDLE);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    while_it_closes(&options);
    return failures != 0;
}

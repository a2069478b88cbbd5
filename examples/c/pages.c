/* Pages of a KV cache, scattered over the GPU's memory, are fetched to the host and brought back elsewhere: one ticket
 * for all of them.
 *
 *   cc pages.c -o pages -ldoorbell && ./pages [pages, 256] */
#include <doorbell.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static doorbell_t *doorbell;

enum { PAGE = 4096 };

static void check(int code, const char *what)
{
    if (code != DOORBELL_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, doorbell_error_text(code), doorbell_error_detail());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 10) : 256;
    if (count < 1 || count > 1 << 20)
        return 2;
    doorbell_buffer_t cache, swap, image;
    void *swapped, *filled;
    doorbell_ticket_t ticket;
    uint32_t *old = calloc(count, sizeof *old), *other = calloc(count, sizeof *other);
    if (!old || !other)
        return 1;
    check(doorbell_create(NULL, &doorbell), "open");
    check(doorbell_buffer_create(doorbell, DOORBELL_VIDEO, 2 * count * PAGE, &cache, NULL), "allocate");
    check(doorbell_buffer_create(doorbell, DOORBELL_HOST, count * PAGE, &swap, &swapped), "allocate");
    check(doorbell_buffer_create(doorbell, DOORBELL_HOST, 2 * count * PAGE, &image, &filled), "allocate");
    for (unsigned long n = 0; n < 2 * count; n++)
        memset((char *)filled + n * PAGE, (int)(n * 31 % 256), PAGE);
    check(doorbell_copy(doorbell, cache, 0, image, 0, 2 * count * PAGE, DOORBELL_FOREVER), "fill the cache");

    /* Every second page goes to the host, the last first. */
    for (unsigned long n = 0; n < count; n++) {
        old[n] = (uint32_t)(2 * (count - 1 - n));
        other[n] = old[n] + 1;
    }
    doorbell_part_t to_host = {swap, 0, cache, 0}, to_gpu = {cache, 0, swap, 0};
    doorbell_pages_t out = {.size = sizeof out, .bytes = PAGE, .from_index = old, .count = count, .index_size = sizeof *old};
    check(doorbell_pages_async(doorbell, &to_host, 1, sizeof to_host, &out, NULL, &ticket), "evict");
    check(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), "wait");
    for (unsigned long n = 0; n < count; n++) {
        if (memcmp((char *)swapped + n * PAGE, (char *)filled + 2 * (count - 1 - n) * PAGE, PAGE) != 0) {
            fprintf(stderr, "page %lu is another\n", n);
            return 1;
        }
    }
    /* And back, each into the page beside its old one. */
    doorbell_pages_t in = {.size = sizeof in, .bytes = PAGE, .to_index = other, .count = count, .index_size = sizeof *other};
    check(doorbell_pages_async(doorbell, &to_gpu, 1, sizeof to_gpu, &in, NULL, &ticket), "bring back");
    check(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), "wait");
    memset(filled, 0xff, 2 * count * PAGE);
    check(doorbell_copy(doorbell, image, 0, cache, 0, 2 * count * PAGE, DOORBELL_FOREVER), "look");
    for (unsigned long n = 0; n < count; n++) {
        if (memcmp((char *)filled + 2 * n * PAGE, (char *)filled + (2 * n + 1) * PAGE, PAGE) != 0) {
            fprintf(stderr, "pages %lu and %lu differ\n", 2 * n, 2 * n + 1);
            return 1;
        }
    }
    printf("%lu pages of %d bytes out and in, two submissions\n", count, PAGE);
    check(doorbell_free(doorbell), "close");
    free(old);
    free(other);
    return 0;
}

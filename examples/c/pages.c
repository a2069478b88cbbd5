/* Pages of a KV cache, scattered over the GPU's memory, are fetched to the host and brought back elsewhere: one doorbell and one
 * ticket for all of them.
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
    if (count < 1 || count > 4096)
        return 2;
    doorbell_buffer_t cache, swap, image;
    void *swapped, *filled;
    doorbell_ticket_t ticket;
    doorbell_piece_t *out = calloc(count, sizeof *out), *in = calloc(count, sizeof *in);
    check(doorbell_create(NULL, &doorbell), "open");
    check(doorbell_buffer_create(doorbell, DOORBELL_VIDEO, 2 * count * PAGE, &cache, NULL), "allocate");
    check(doorbell_buffer_create(doorbell, DOORBELL_HOST, count * PAGE, &swap, &swapped), "allocate");
    check(doorbell_buffer_create(doorbell, DOORBELL_HOST, 2 * count * PAGE, &image, &filled), "allocate");
    for (unsigned long n = 0; n < 2 * count; n++)
        memset((char *)filled + n * PAGE, (int)(n * 31 % 256), PAGE);
    check(doorbell_copy(doorbell, cache, 0, image, 0, 2 * count * PAGE, DOORBELL_FOREVER), "fill the cache");

    /* Every second page goes to the host, the last first. */
    for (unsigned long n = 0; n < count; n++) {
        doorbell_piece_t piece = {swap, n * PAGE, cache, 2 * (count - 1 - n) * PAGE, PAGE};
        out[n] = piece;
    }
    check(doorbell_copy_batch_async(doorbell, out, count, sizeof(doorbell_piece_t), NULL, &ticket), "evict");
    check(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), "wait");
    for (unsigned long n = 0; n < count; n++) {
        if (memcmp((char *)swapped + n * PAGE, (char *)filled + 2 * (count - 1 - n) * PAGE, PAGE) != 0) {
            fprintf(stderr, "page %lu is another\n", n);
            return 1;
        }
    }
    /* And back, each into the page beside its old one. */
    for (unsigned long n = 0; n < count; n++) {
        doorbell_piece_t piece = {cache, (2 * (count - 1 - n) + 1) * PAGE, swap, n * PAGE, PAGE};
        in[n] = piece;
    }
    check(doorbell_copy_batch_async(doorbell, in, count, sizeof(doorbell_piece_t), NULL, &ticket), "bring back");
    check(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), "wait");
    memset(filled, 0xff, 2 * count * PAGE);
    check(doorbell_copy(doorbell, image, 0, cache, 0, 2 * count * PAGE, DOORBELL_FOREVER), "look");
    for (unsigned long n = 0; n < count; n++) {
        if (memcmp((char *)filled + 2 * n * PAGE, (char *)filled + (2 * n + 1) * PAGE, PAGE) != 0) {
            fprintf(stderr, "pages %lu and %lu differ\n", 2 * n, 2 * n + 1);
            return 1;
        }
    }
    printf("%lu pages of %d bytes out and in, two doorbells\n", count, PAGE);
    check(doorbell_free(doorbell), "close");
    free(out);
    free(in);
    return 0;
}

/* A camera's frames go to the GPU through a ring of four: the camera fills the next while the copy of the one before is under
 * way. An overrun (the camera is faster than the copies) is an error, not a torn frame.
 *
 *   cc frames.c -o frames -ldoorbell && ./frames [frames, 200]
 *
 * The memory is doorbell's own, so this runs beside CUDA or on the software GPU (LD_PRELOAD); cudaHostAlloc's and cudaMalloc's
 * memory is pinned with doorbell_buffer_register() instead. */
#include <doorbell.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static doorbell_t *doorbell;

enum { FRAMES = 4, BYTES = 64 * 1024 };

static void check(int code, const char *what)
{
    if (code != DOORBELL_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, doorbell_error_text(code), doorbell_error_detail());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    unsigned long wanted = argc > 1 ? strtoul(argv[1], NULL, 10) : 200, overruns = 0;
    doorbell_buffer_t camera, gpu, back;
    doorbell_ring_t ring;
    doorbell_ticket_t last[FRAMES] = {0};
    void *seen;
    check(doorbell_create(NULL, &doorbell), "open");
    check(doorbell_buffer_create(doorbell, DOORBELL_HOST, FRAMES * BYTES, &camera, NULL), "allocate");
    check(doorbell_buffer_create(doorbell, DOORBELL_VIDEO, FRAMES * BYTES, &gpu, NULL), "allocate");
    check(doorbell_buffer_create(doorbell, DOORBELL_HOST, BYTES, &back, &seen), "allocate");
    check(doorbell_ring_create(doorbell, gpu, 0, camera, 0, BYTES, FRAMES, &ring), "ring");
    for (unsigned long n = 0; n < wanted; n++) {
        doorbell_frame_t frame = {.size = sizeof(doorbell_frame_t)};
        int code;
        while ((code = doorbell_ring_next(doorbell, ring, &frame)) == DOORBELL_OVERRUN)
            overruns++; /* A real camera would drop this frame. */
        check(code, "next frame");
        memset(frame.pointer, (int)(n % 251), BYTES);
        check(doorbell_ring_async(doorbell, ring, NULL, &last[frame.index]), "submit");
        /* Every so often, look at what the GPU has. */
        if (n % 50 == 49) {
            check(doorbell_wait(doorbell, last[frame.index], DOORBELL_FOREVER), "wait");
            check(doorbell_copy(doorbell, back, 0, gpu, frame.offset, BYTES, DOORBELL_FOREVER), "copy back");
            if (memcmp(seen, frame.pointer, BYTES) != 0) {
                fprintf(stderr, "frame %lu is another on the GPU\n", n);
                return 1;
            }
        }
    }
    printf("%lu frames, the last four in slots of %d bytes; the camera had to wait %s\n", wanted, BYTES,
           overruns ? "at times" : "never");
    check(doorbell_ring_free(doorbell, ring), "close ring");
    check(doorbell_free(doorbell), "close");
    return 0;
}

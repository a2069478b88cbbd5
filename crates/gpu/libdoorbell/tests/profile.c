/* The session follows the profile that $DOORBELL_PROFILE names: up to 256 bytes by stores. Prints which way each size goes, or why it does not open. */
#include <doorbell.h>
#include <stdio.h>
#include <string.h>

static doorbell_t *doorbell;

static int failed(const char *what)
{
    printf("%s: %s\n", what, doorbell_error_detail());
    return 3;
}

int main(void)
{
    doorbell_buffer_t host, video;
    doorbell_transfer_t transfer;
    doorbell_ticket_t ticket;
    void *data, *seen;
    bool done = false;
    char why[512];
    if (doorbell_create(NULL, &doorbell) != DOORBELL_OK)
        return failed("open");
    if (doorbell_buffer_create(doorbell, DOORBELL_HOST, 4096, &host, &data) || doorbell_buffer_create(doorbell, DOORBELL_VIDEO, 4096, &video, &seen))
        return failed("allocate");
    for (uint64_t bytes = 256; bytes <= 257; bytes++) {
        uint32_t way;
        memset(data, (int)bytes - 100, 4096);
        if (doorbell_copy_explain(doorbell, video, host, bytes, true, &way, why, sizeof why) != DOORBELL_OK)
            return failed("explain");
        printf("%d: way %u, %s\n", (int)bytes, way, why);
        if (doorbell_transfer_create(doorbell, video, 0, host, 0, bytes, &transfer) || doorbell_transfer_async(doorbell, transfer, NULL, &ticket))
            return failed("submit");
        /* By stores it is done when it has been submitted. */
        if (doorbell_poll(doorbell, ticket, &done) || (way == DOORBELL_BY_STORES && !done) || doorbell_wait(doorbell, ticket, DOORBELL_FOREVER))
            return failed("not done");
        if (memcmp(data, seen, bytes) != 0)
            return failed("other bytes");
        if (doorbell_copy(doorbell, video, 1000, host, 0, bytes, DOORBELL_FOREVER) || memcmp(data, (char *)seen + 1000, bytes) != 0)
            return failed("copy");
        if (doorbell_copy(doorbell, host, 2000, video, 0, bytes, DOORBELL_FOREVER) || memcmp((char *)data + 2000, seen, bytes) != 0)
            return failed("copy back");
    }
    return doorbell_free(doorbell) == DOORBELL_OK ? 0 : failed("close");
}

/* Threads are in every call while the process forks: each call of a child must return, and where a session is open with DOORBELL_FORKED.
 *
 *     forked FORKS SESSION NAME..     SESSION: 1 with an open session, 0 without; NAME: functions of the library
 *
 * Prints nothing unless something is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <doorbell.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int32_t (*call_t)(void *, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static doorbell_t *doorbell;
static _Atomic int stop;

static doorbell_options_t options(uint32_t gpu)
{
    doorbell_options_t o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.kind = DOORBELL_SOFTWARE;
    o.gpu = gpu;
    o.lanes = 1;
    o.profile = "";
    return o;
}

static void *opens(void *fails)
{
    doorbell_options_t o = options(fails ? 7 : 0);
    doorbell_t *other;
    while (!stop)
        if (doorbell_create(&o, &other) == DOORBELL_OK)
            doorbell_free(other);
    return NULL;
}

static void *begins(void *unused)
{
    bool yes;
    while (!stop) {
        doorbell_init();
        doorbell_watching(&yes);
        doorbell_recording_get(&yes);
    }
    return unused;
}

static void *uses(void *unused)
{
    doorbell_buffer_t buffer;
    doorbell_transfer_t transfer;
    doorbell_queue_t queue;
    doorbell_ticket_t ticket;
    while (!stop) {
        if (doorbell_buffer_create(doorbell, DOORBELL_HOST, 4096, &buffer, NULL) != DOORBELL_OK)
            continue;
        if (doorbell_transfer_create(doorbell, buffer, 0, buffer, 64, 8, &transfer) == DOORBELL_OK) {
            if (doorbell_transfer_async(doorbell, transfer, NULL, &ticket) == DOORBELL_OK && doorbell_queue_create(doorbell, 4, &queue) == DOORBELL_OK) {
                doorbell_queue_add(doorbell, queue, ticket, 0);
                doorbell_queue_wait(doorbell, queue, 1000000);
                doorbell_queue_free(doorbell, queue);
            }
            doorbell_transfer_free(doorbell, transfer);
        }
        doorbell_buffer_free(doorbell, buffer);
    }
    return unused;
}

/* In a child. Most take a session first. The others are called as programs call them. */
static int32_t called(const char *name)
{
    doorbell_options_t mine = options(0);
    doorbell_t *other;
    bool yes;
    int32_t code;
    if (!strcmp(name, "doorbell_create")) {
        code = doorbell_create(&mine, &other);
        return code == DOORBELL_OK ? doorbell_free(other) : code;
    }
    if (!strcmp(name, "doorbell_watching"))
        return doorbell_watching(&yes);
    if (!strncmp(name, "doorbell_recording", 18)) {
        code = ((int32_t (*)(bool *))dlsym(RTLD_DEFAULT, name))(&yes);
        /* A recorded program's children may be recorded, too. */
        return code == DOORBELL_OK ? DOORBELL_FORKED : code;
    }
    return ((call_t)dlsym(RTLD_DEFAULT, name))(doorbell, 0, 0, 0, 0, 0, 0, 0);
}

int main(int argc, char **argv)
{
    int forks = atoi(argv[1]), with_session = atoi(argv[2]), wrong = 0;
    volatile int *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    doorbell_options_t mine = options(0);
    if (with_session && doorbell_create(&mine, &doorbell) != DOORBELL_OK)
        return 2;
    pthread_t threads[5];
    pthread_create(&threads[0], NULL, opens, &stop);
    pthread_create(&threads[1], NULL, opens, with_session ? NULL : &stop);
    pthread_create(&threads[2], NULL, begins, NULL);
    for (int n = 3; n < 5; n++)
        pthread_create(&threads[n], NULL, with_session ? uses : begins, NULL);
    for (int f = 0; f < forks && wrong < 5; f++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            /* Each child begins with another one. */
            for (int n = 0; n < argc - 3; n++) {
                *at = 3 + (n + f) % (argc - 3);
                int32_t code = called(argv[*at]);
                if (with_session && code != DOORBELL_FORKED)
                    _exit(100 + code);
            }
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0 && ++wrong)
            fprintf(stderr, "fork %d: %s: %s %d\n", f, argv[*at], WIFSIGNALED(status) ? "killed by signal" : "100 and code", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    stop = 1;
    return wrong != 0;
}

/* Which bytes of a plain mutex are not zero when it is free again, after use by one thread and by several. Also that a mutex
 * which is cleared while it is free works like a new one. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static int n;

static void *uses(void *p) {
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&m);
        if (++n % 50 == 0) usleep(100);
        pthread_mutex_unlock(&m);
    }
    return p;
}

static void together(void) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, uses, NULL);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
}

static void say(const char *what) {
    unsigned char bytes[sizeof m];
    memcpy(bytes, &m, sizeof m);
    printf("%s:", what);
    for (unsigned i = 0; i < sizeof m; i++)
        if (bytes[i]) printf(" %u", i);
    puts("");
}

int main(void) {
    uses(NULL);
    say("alone");
    together();
    say("together");
    memset(&m, 0, sizeof m);
    together();
    say("cleared");
    pthread_mutex_destroy(&m);
    printf("n %d\n", n);
    return 0;
}

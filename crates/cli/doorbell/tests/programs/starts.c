/* Starts the program argv[1] in every way that libc has, with and without a separate environment. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void done(pid_t pid, const char *name)
{
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
        printf("%s: ended with %x\n", name, status);
}

#define FORK(name, call) do { fflush(stdout); pid_t p = fork(); if (!p) { call; _exit(9); } done(p, name); } while (0)
#define VFORK(name, call) do { fflush(stdout); pid_t p = vfork(); if (!p) { call; _exit(9); } done(p, name); } while (0)

static int calls;
static void *counts(void *unused)
{
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&m);
        calls++;
        pthread_mutex_unlock(&m);
    }
    return unused;
}

int main(int argc, char **argv)
{
    char *w = argv[1], line[4096], *own[] = {"A=1", NULL};
    char *many[3001];
    (void)argc;
    for (int i = 0; i < 3000; i++)
        asprintf(&many[i], "VARIABLE_%d=%d", i, i);
    many[3000] = NULL;

    FORK("execl", execl(w, w, "execl", "1", "2", "3", "4", "5", "6", "7", (char *)NULL));
    FORK("execl, one argument", execl(w, w, (char *)NULL));
    FORK("execle", execle(w, w, "execle", "1", "2", "3", "4", "5", "6", (char *)NULL, own));
    FORK("execlp", execlp("who", w, "execlp", (char *)NULL));
    FORK("execv", execv(w, (char *[]){w, "execv", NULL}));
    FORK("execve", execve(w, (char *[]){w, "execve", NULL}, own));
    FORK("execve without environment", execve(w, (char *[]){w, "execve-null", NULL}, NULL));
    FORK("execve with a large environment", execve(w, (char *[]){w, "execve-many", NULL}, many));
    FORK("execvp", execvp("who", (char *[]){w, "execvp", NULL}));
    FORK("execvpe", execvpe("who", (char *[]){w, "execvpe", NULL}, own));
    FORK("fexecve", fexecve(open(w, O_RDONLY), (char *[]){w, "fexecve", NULL}, own));
    FORK("execveat", execveat(AT_FDCWD, w, (char *[]){w, "execveat", NULL}, own, 0));
    VFORK("vfork and execve", execve(w, (char *[]){w, "vfork", NULL}, own));
    VFORK("vfork and execlp", execlp("who", w, "vfork-execlp", (char *)NULL));

    pid_t pid;
    fflush(stdout);
    posix_spawn(&pid, w, NULL, NULL, (char *[]){w, "posix_spawn", NULL}, own);
    done(pid, "posix_spawn");
    posix_spawnp(&pid, "who", NULL, NULL, (char *[]){w, "posix_spawnp", NULL}, environ);
    done(pid, "posix_spawnp");
    snprintf(line, sizeof line, "%s system", w);
    printf("system: %d\n", WEXITSTATUS(system(line)));
    snprintf(line, sizeof line, "nosuchcommand 2>/dev/null || kill -9 $$");
    printf("system, killed: %x\n", system(line));
    printf("system, no command: %d\n", system(NULL) != 0);
    snprintf(line, sizeof line, "%s popen", w);
    FILE *f = popen(line, "r");
    if (fgets(line, sizeof line, f))
        fputs(line, stdout);
    printf("popen: %d\n", WEXITSTATUS(pclose(f)));

    /* A failed start has the same error as without doorbell. */
    char *a[] = {w, NULL};
    int r = execve("/nowhere", a, own);
    printf("no such file: %d %d\n", r, errno == ENOENT);
    r = execvp("nosuchprogram", a);
    printf("not in PATH: %d %d\n", r, errno == ENOENT);
    r = execve("/tmp", a, own);
    printf("a directory: %d %d\n", r, errno == EACCES);
    r = posix_spawn(&pid, "/nowhere", NULL, NULL, a, own);
    printf("posix_spawn: %d\n", r == ENOENT);

    /* The vfork children left this process as it was. */
    pthread_t t;
    pthread_create(&t, NULL, counts, NULL);
    pthread_join(t, NULL);
    printf("calls: %d\n", calls);
    return 0;
}

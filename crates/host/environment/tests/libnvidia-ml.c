/* An NVML with two GPUs, for machines without one. What it lacks is a symbol that is not there. The first one's link moves 1000 MiB a
 * second to the GPU and 50 from it, and the GPU draws 200 W. The second one is found by its UUID, and its link counts 300 and 7. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OK 0
#define NOT_SUPPORTED 3
#define NOT_FOUND 6

typedef void *device;
static int gpu, second;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int is(const char *variable)
{
    return getenv(variable) != NULL;
}

int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }

int nvmlSystemGetDriverVersion(char *out, unsigned length)
{
    snprintf(out, length, "580.0");
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *out)
{
    *out = &gpu;
    return index == 0 ? OK : NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device *out)
{
    *out = &gpu;
    return strcmp(id, "0000:41:00.0") == 0 ? OK : NOT_FOUND;
}

int nvmlDeviceGetHandleByUUID(const char *id, device *out)
{
    *out = &second;
    return strcmp(id, "GPU-00112233-4455-6677-8899-aabbccddeeff") == 0 ? OK : NOT_FOUND;
}

int nvmlDeviceGetName(device d, char *out, unsigned length)
{
    snprintf(out, length, "GPU of a test");
    return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(device d, unsigned long long *out)
{
    *out = 1000000 + (unsigned long long)(seconds() * 200e3);
    return OK;
}

int nvmlDeviceGetTemperature(device d, unsigned sensor, unsigned *out)
{
    *out = 41;
    return OK;
}

int nvmlDeviceGetCurrPcieLinkWidth(device d, unsigned *out)
{
    *out = 8;
    return OK;
}

int nvmlDeviceGetMaxPcieLinkWidth(device d, unsigned *out)
{
    *out = 16;
    return OK;
}

int nvmlDeviceGetPersistenceMode(device d, unsigned *out)
{
    return NOT_SUPPORTED;
}

int nvmlDeviceGetPcieThroughput(device d, unsigned counter, unsigned *out)
{
    *out = counter == 1 ? 2000 : 100; /* 1: received; in KB/s */
    return OK;
}

/* 32 bits of what the GPU of the metrics below would count: 1000 MiB a second to it, 50 from it. At line rate sixty times as much. */
struct field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type, result;
    union {
        unsigned u32;
        unsigned long long u64;
    } value;
};

int nvmlDeviceGetFieldValues(device d, int count, struct field *all)
{
    for (int i = 0; i < count; i++) {
        double mib = d == &second ? (all[i].id == 198 ? 300 : 7) : all[i].id == 198 ? 1000 : 50;
        if (is("NVML_LINE_RATE"))
            mib *= 60;
        all[i].type = 1; /* NVML_VALUE_TYPE_UNSIGNED_INT */
        all[i].value.u32 = (unsigned)(unsigned long long)(seconds() * mib * 1048576);
        all[i].result = all[i].id == 197 || all[i].id == 198 ? OK : NOT_SUPPORTED;
    }
    return is("NVML_WITHOUT_FIELDS") ? NOT_SUPPORTED : OK;
}

struct support { unsigned version, supported; };

int nvmlGpmQueryDeviceSupport(device d, struct support *out)
{
    out->supported = !is("NVML_WITHOUT_GPM");
    return OK;
}

struct metric {
    unsigned id;
    int result;
    double value;
    const char *names[3];
};

struct metrics {
    unsigned version, count;
    double *first, *second;
    struct metric all[];
};

int nvmlGpmSampleAlloc(double **out)
{
    *out = calloc(1, sizeof(double));
    return OK;
}

int nvmlGpmSampleFree(double *sample)
{
    free(sample);
    return OK;
}

int nvmlGpmSampleGet(device d, double *sample)
{
    *sample = seconds();
    return OK;
}

int nvmlGpmMetricsGet(struct metrics *m)
{
    /* Samples in the wrong order, or one that was freed. */
    if (!(*m->second > *m->first) || *m->first <= 0)
        return 2;
    for (unsigned i = 0; i < m->count; i++) {
        m->all[i].result = OK;
        switch (m->all[i].id) {
        case 20: m->all[i].value = 50; break; /* NVML_GPM_METRIC_PCIE_TX_PER_SEC */
        case 21: m->all[i].value = 1000; break; /* NVML_GPM_METRIC_PCIE_RX_PER_SEC */
        default: m->all[i].result = NOT_SUPPORTED;
        }
    }
    return OK;
}

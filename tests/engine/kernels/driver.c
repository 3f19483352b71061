/* What nvrtc.py needs of CUDA's driver, for a kernel `add` on a processor's memory. */
#include <string.h>

static char module, add, primary;
static void *context;

int cuCtxGetCurrent(void **found) { return *found = &primary, 0; }
int cuCtxSetCurrent(void *wanted) { return context = wanted, 0; }
int cuModuleLoadData(void **found, const char *code) {
    *found = &module;
    return strcmp(code, "code") ? 200 : 0;
}

int cuModuleGetFunction(void **found, void *of, const char *name) {
    *found = &add;
    return of != &module || strcmp(name, "add") ? 500 : 0;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned a,
                   unsigned b, unsigned shared, void *stream, void **arguments, void **extra) {
    if (context != &primary) return 201; /* as in a thread that has not used the GPU yet */
    if (function != &add || z * a * b != 1 || shared || extra || stream != (void *)77) return 1;
    float *values = *(float **)arguments[0];
    const long long count = *(long long *)arguments[1], by = *(long long *)arguments[2];
    if (*(void **)arguments[3] || count > (long long)x * y * threads) return 1;
    for (long long i = 0; i < count; i++) values[i] += by;
    return 0;
}

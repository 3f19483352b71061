
typedef struct {
    const real *weights, *windows;
    real *kept, *last, *gradient; /* no gradient: forward */
    long long stride, vehicle_apart, apart, batch, seconds;
    int thread;
} call_t;

static void *thread_of(void *given) {
    const call_t *c = given;
    threadIdx.x = c->thread;
    if (c->gradient)
        backward(c->weights, c->stride, c->windows, c->vehicle_apart, c->apart, c->kept, c->last,
                 c->gradient, c->batch, c->seconds);
    else
        forward(c->weights, c->stride, c->windows, c->vehicle_apart, c->apart, c->kept, c->last,
                c->batch, c->seconds);
    return 0;
}

static int run(call_t call, int tiles, int vehicles) {
    static pthread_t threads[COLUMNS];
    static call_t calls[COLUMNS];
    int started = 0;
    gridDim.x = tiles, gridDim.y = vehicles;
    pthread_barrier_init(&all_here, 0, COLUMNS);
    for (blockIdx.y = 0; blockIdx.y < vehicles; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < tiles; blockIdx.x++) {
            for (int i = 0; i < COLUMNS; i++) {
                calls[i] = call, calls[i].thread = i;
                if (pthread_create(&threads[i], 0, thread_of, &calls[i])) abort();
            }
            for (int i = 0; i < COLUMNS; i++) pthread_join(threads[i], 0);
            started++;
        }
    return started;
}

int launch_forward(const real *weights, long long stride, const real *windows,
                   long long vehicle_apart, long long apart, real *kept, real *last,
                   long long batch, long long seconds, int tiles, int vehicles) {
    return run((call_t){weights, windows, kept, last, 0, stride, vehicle_apart, apart, batch,
                        seconds, 0}, tiles, vehicles);
}

int launch_backward(const real *weights, long long stride, const real *windows,
                    long long vehicle_apart, long long apart, real *kept, real *last,
                    real *gradient, long long batch, long long seconds, int tiles, int vehicles) {
    return run((call_t){weights, windows, kept, last, gradient, stride, vehicle_apart, apart, batch,
                        seconds, 0}, tiles, vehicles);
}

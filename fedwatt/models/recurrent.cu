/* All seconds of a window through a GRU or LSTM in one kernel, forward and backward through time.

   One block of threads takes TILE windows of one vehicle from the first second to the last. It has
   a thread for each of COLUMNS = 4·HIDDEN gate sums, which keeps that sum's weights in registers
   for the whole window; state and inputs of the second lie in shared memory, where all threads read
   the same number at the same time. recurrent_gpu.py compiles this for one model and type of
   numbers (HIDDEN, FEATURES, LSTM or not, `real` with its EXP and TANH) and says what the arguments are.

   Weights, and the gradient, lie as the model's layout has them: input.weight [FEATURES, WIDTH],
   input.bias [WIDTH], recurrent.weight [HIDDEN, WIDTH], recurrent.bias [WIDTH]. */
#ifndef KERNEL
#define KERNEL extern "C" __global__ void __launch_bounds__(COLUMNS)
#define INLINE static __device__ __forceinline__
#endif

enum {
    TILE = 8, /* windows of a block */
    COLUMNS = 4 * HIDDEN,
    ROWS = HIDDEN + FEATURES, /* of z = (h; x) */
    CELLS = HIDDEN * TILE,
    OWN = TILE / 4,                                      /* cells of a thread: CELLS / COLUMNS */
    LOADS = (FEATURES * TILE + COLUMNS - 1) / COLUMNS,   /* inputs of a second that it loads */
};

/* Four blocks of gate sums, in the layout's order. A GRU's new gate has one from the state and one
   from the input, because the reset gate comes between them. `kept` of a second are the gates, the
   state and, of an LSTM, the cell before it. */
#ifdef LSTM
enum { GATES = 4, KEPT = 6 };
INLINE int gate_of(int block) { return block; }
INLINE int has_state(int block) { return 1; }
INLINE int has_input(int block) { return 1; }
#else
enum { GATES = 3, KEPT = 5 };
INLINE int gate_of(int block) { return block < 3 ? block : 2; }
INLINE int has_state(int block) { return block != 3; }
INLINE int has_input(int block) { return block != 2; }
#endif

enum {
    WIDTH = GATES * HIDDEN,
    INPUT_BIAS = FEATURES * WIDTH,
    RECURRENT = INPUT_BIAS + WIDTH,
    RECURRENT_BIAS = RECURRENT + HIDDEN * WIDTH,
    SIZE = RECURRENT_BIAS + WIDTH,
};

INLINE real sigmoid(real x) { return 1 / (1 + EXP(-x)); }

/* What a block's gate sum becomes before the sums of a unit meet. */
INLINE real opened(int block, real sum) {
#ifdef LSTM
    return block == 2 ? TANH(sum) : sigmoid(sum);
#else
    return block < 2 ? sigmoid(sum) : sum;
#endif
}

/* This thread's inputs of one second, 0 beyond the batch; a window's seconds lie one by one. */
INLINE void load(real *inputs, const real *windows, long long apart, int count, int second) {
    for (int i = 0; i < LOADS; i++) {
        const int place = threadIdx.x + i * COLUMNS, window = place / FEATURES;
        const int known = place < FEATURES * TILE && window < count;
        inputs[i] = known ? windows[window * apart + second * FEATURES + place % FEATURES] : 0;
    }
}

INLINE void lay_down(real (*x)[TILE], const real *inputs) {
    for (int i = 0; i < LOADS; i++) {
        const int place = threadIdx.x + i * COLUMNS;
        if (place < FEATURES * TILE) x[place % FEATURES][place / FEATURES] = inputs[i];
    }
}

/* The state after the last second to `last` [vehicles, batch, HIDDEN]; what `backward` needs of
   all seconds to `kept` [vehicles, tiles, seconds, KEPT, HIDDEN, TILE] unless that is null. A
   vehicle's weights are `stride` numbers apart, its windows `vehicle_apart`, one of them `apart`. */
KERNEL forward(const real *weights, long long stride, const real *windows, long long vehicle_apart,
               long long apart, real *kept, real *last, long long batch, long long seconds) {
    __shared__ __align__(16) real z[ROWS][TILE];
    __shared__ __align__(16) real sums[COLUMNS][TILE];
    const int me = threadIdx.x, block = me / HIDDEN, vehicle = blockIdx.y;
    const int column = gate_of(block) * HIDDEN + me % HIDDEN;
    const long long begin = (long long)blockIdx.x * TILE;
    const int count = batch - begin < TILE ? batch - begin : TILE;
    weights += vehicle * stride;
    windows += vehicle * vehicle_apart + begin * apart;
    if (kept) kept += ((long long)vehicle * gridDim.x + blockIdx.x) * seconds * KEPT * CELLS;
    real w[ROWS], inputs[LOADS], bias = 0;
#pragma unroll
    for (int k = 0; k < HIDDEN; k++)
        w[k] = has_state(block) ? weights[RECURRENT + k * WIDTH + column] : 0;
#pragma unroll
    for (int k = 0; k < FEATURES; k++)
        w[HIDDEN + k] = has_input(block) ? weights[k * WIDTH + column] : 0;
    if (has_state(block)) bias += weights[RECURRENT_BIAS + column];
    if (has_input(block)) bias += weights[INPUT_BIAS + column];
#ifdef LSTM
    real cell[OWN] = {0};
#endif
    for (int i = 0; i < OWN; i++) z[(me + i * COLUMNS) / TILE][(me + i * COLUMNS) % TILE] = 0;
    load(inputs, windows, apart, count, 0);
    lay_down(z + HIDDEN, inputs);
    __syncthreads();
    for (int t = 0; t < seconds; t++) {
        if (t + 1 < seconds) load(inputs, windows, apart, count, t + 1);
        real sum[TILE];
#pragma unroll
        for (int b = 0; b < TILE; b++) sum[b] = bias;
#pragma unroll
        for (int k = 0; k < ROWS; k++)
#pragma unroll
            for (int b = 0; b < TILE; b++) sum[b] += w[k] * z[k][b];
#pragma unroll
        for (int b = 0; b < TILE; b++) sums[me][b] = opened(block, sum[b]);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int place = me + i * COLUMNS, unit = place / TILE, b = place % TILE;
            const real h = z[unit][b], first = sums[unit][b], second = sums[HIDDEN + unit][b];
            const real third = sums[2 * HIDDEN + unit][b], fourth = sums[3 * HIDDEN + unit][b];
#ifdef LSTM
            const real values[KEPT] = {first, second, third, fourth, h, cell[i]};
            cell[i] = second * cell[i] + first * third;
            z[unit][b] = fourth * TANH(cell[i]);
#else
            const real fresh = TANH(fourth + first * third);
            const real values[KEPT] = {first, second, third, fresh, h};
            z[unit][b] = fresh + second * (h - fresh);
#endif
            if (kept)
#pragma unroll
                for (int k = 0; k < KEPT; k++) kept[(t * KEPT + k) * CELLS + place] = values[k];
        }
        if (t + 1 < seconds) lay_down(z + HIDDEN, inputs);
        __syncthreads();
    }
    for (int i = 0; i < OWN; i++) {
        const int place = me + i * COLUMNS, unit = place / TILE, b = place % TILE;
        if (b < count) last[(vehicle * batch + begin + b) * HIDDEN + unit] = z[unit][b];
    }
}

/* From the slope of `last` to the gradient of the weights, [vehicles, tiles, SIZE]: each block adds
   up its own windows. */
KERNEL backward(const real *weights, long long stride, const real *windows, long long vehicle_apart,
                long long apart, const real *kept, const real *last, real *gradient, long long batch,
                long long seconds) {
    __shared__ __align__(16) real z[ROWS][TILE];
    __shared__ __align__(16) real slopes[COLUMNS][TILE];
    __shared__ __align__(16) real parts[COLUMNS][TILE]; /* of the slope of h, one for each block */
    const int me = threadIdx.x, block = me / HIDDEN, unit = me % HIDDEN, vehicle = blockIdx.y;
    const int column = gate_of(block) * HIDDEN + unit;
    const long long begin = (long long)blockIdx.x * TILE;
    const int count = batch - begin < TILE ? batch - begin : TILE;
    const long long tile = (long long)vehicle * gridDim.x + blockIdx.x;
    weights += vehicle * stride;
    windows += vehicle * vehicle_apart + begin * apart;
    kept += tile * seconds * KEPT * CELLS;
    gradient += tile * SIZE;
    /* The way back from this block's sums to the state of one unit. */
    real back[HIDDEN], total[ROWS] = {0}, bias = 0, inputs[LOADS], values[OWN][KEPT];
#pragma unroll
    for (int k = 0; k < HIDDEN; k++)
        back[k] = has_state(block)
                      ? weights[RECURRENT + unit * WIDTH + gate_of(block) * HIDDEN + k]
                      : 0;
    real passing[OWN]; /* of the slope of h: what goes by the gates */
#ifdef LSTM
    real d_cell[OWN] = {0};
#endif
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int place = me + i * COLUMNS, b = place % TILE;
        const long long row = vehicle * batch + begin + b;
        passing[i] = b < count ? last[row * HIDDEN + place / TILE] : 0;
    }
#pragma unroll
    for (int b = 0; b < TILE; b++) parts[me][b] = 0;
    load(inputs, windows, apart, count, seconds - 1);
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            values[i][k] = kept[((seconds - 1) * KEPT + k) * CELLS + me + i * COLUMNS];
    __syncthreads();
    for (int t = seconds - 1; t >= 0; t--) {
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int place = me + i * COLUMNS, to = place / TILE, b = place % TILE;
            const real dh = passing[i] + parts[to][b] + parts[HIDDEN + to][b] +
                            parts[2 * HIDDEN + to][b] + parts[3 * HIDDEN + to][b];
            const real first = values[i][0], second = values[i][1], third = values[i][2];
            const real fourth = values[i][3], h = values[i][4];
#ifdef LSTM
            const real cell = values[i][5], bent = TANH(second * cell + first * third);
            const real d = d_cell[i] + dh * fourth * (1 - bent * bent);
            slopes[to][b] = d * third * first * (1 - first);
            slopes[HIDDEN + to][b] = d * cell * second * (1 - second);
            slopes[2 * HIDDEN + to][b] = d * first * (1 - third * third);
            slopes[3 * HIDDEN + to][b] = dh * bent * fourth * (1 - fourth);
            d_cell[i] = d * second;
            passing[i] = 0;
#else
            const real d = dh * (1 - second) * (1 - fourth * fourth);
            slopes[to][b] = d * third * first * (1 - first);
            slopes[HIDDEN + to][b] = dh * (h - fourth) * second * (1 - second);
            slopes[2 * HIDDEN + to][b] = d * first;
            slopes[3 * HIDDEN + to][b] = d;
            passing[i] = dh * second;
#endif
            z[to][b] = h;
        }
        lay_down(z + HIDDEN, inputs);
        __syncthreads();
        if (t > 0) {
            load(inputs, windows, apart, count, t - 1);
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int k = 0; k < KEPT; k++)
                    values[i][k] = kept[((t - 1) * KEPT + k) * CELLS + me + i * COLUMNS];
        }
        real own[TILE], part[TILE] = {0};
#pragma unroll
        for (int b = 0; b < TILE; b++) {
            own[b] = slopes[me][b];
            bias += own[b];
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++)
#pragma unroll
            for (int b = 0; b < TILE; b++) total[k] += z[k][b] * own[b];
#pragma unroll
        for (int k = 0; k < HIDDEN; k++)
#pragma unroll
            for (int b = 0; b < TILE; b++) part[b] += back[k] * slopes[block * HIDDEN + k][b];
#pragma unroll
        for (int b = 0; b < TILE; b++) parts[me][b] = part[b];
        __syncthreads();
    }
    if (has_state(block)) {
#pragma unroll
        for (int k = 0; k < HIDDEN; k++) gradient[RECURRENT + k * WIDTH + column] = total[k];
        gradient[RECURRENT_BIAS + column] = bias;
    }
    if (has_input(block)) {
#pragma unroll
        for (int k = 0; k < FEATURES; k++) gradient[k * WIDTH + column] = total[HIDDEN + k];
        gradient[INPUT_BIAS + column] = bias;
    }
}

/* All seconds of a window through a GRU or LSTM in one kernel, forward and backward through time.

   GRU   r = s(a_r), u = s(a_u), n = tanh(x_n + r h_n), h' = n + u (h - n)
   LSTM  i = s(a_i), f = s(a_f), g = tanh(a_g), o = s(a_o), c' = f c + i g, h' = o tanh(c')

   with the logistic function s and gate sums a = W_x x + b_x + W_h h + b_h, of which a GRU's new
   gate keeps the part of the input, x_n, and that of the state, h_n, apart.

   One block of threads takes TILE windows of one vehicle from the first second to the last. It has
   a thread for each of COLUMNS = 4 HIDDEN sums, which keeps that sum's weights in registers for the
   whole window; z = (h; x) of the second lies in shared memory, where all threads of a warp read
   the same number at the same time. Inputs of the next second are fetched while this one is
   computed. Two barriers a second: one after all sums are written, one after the new z is.

   recurrent_gpu.py compiles this for one cell and type of numbers, and defines GRU or LSTM, HIDDEN,
   FEATURES, TILE (a multiple of 4), KEPT, and `real` with its EXP and TANH. Weights and gradient lie
   as the model's layout has them: input.weight [FEATURES, WIDTH], input.bias [WIDTH],
   recurrent.weight [HIDDEN, WIDTH], recurrent.bias [WIDTH]. */
#ifndef KERNEL
#define KERNEL extern "C" __global__ void __launch_bounds__(COLUMNS)
#define INLINE static __device__ __forceinline__
#endif

/* Four blocks of sums of HIDDEN units each, in the layout's order of gates. */
#ifdef LSTM
enum { GATES = 4 };
INLINE int gate_of(int block) { return block; } /* i, f, g, o */
INLINE int has_state(int block) { return 1; }
INLINE int has_input(int block) { return 1; }
#else
enum { GATES = 3 };
INLINE int gate_of(int block) { return block < 3 ? block : 2; } /* r, u, h_n, x_n */
INLINE int has_state(int block) { return block != 3; }
INLINE int has_input(int block) { return block != 2; }
#endif

enum {
    COLUMNS = 4 * HIDDEN,
    ROWS = HIDDEN + FEATURES, /* of z */
    CELLS = HIDDEN * TILE,    /* numbers of a state */
    OWN = TILE / 4,           /* of them a thread's: CELLS / COLUMNS */
    LOADS = (FEATURES * TILE + COLUMNS - 1) / COLUMNS, /* inputs of a second, a thread's */
    WIDTH = GATES * HIDDEN,
    INPUT_BIAS = FEATURES * WIDTH,
    RECURRENT = INPUT_BIAS + WIDTH,
    RECURRENT_BIAS = RECURRENT + HIDDEN * WIDTH,
    SIZE = RECURRENT_BIAS + WIDTH,
};

INLINE real logistic(real x) { return 1 / (1 + EXP(-x)); }

/* What becomes of a sum before those of a unit meet. */
INLINE real opened(int block, real sum) {
#ifdef LSTM
    return block == 2 ? TANH(sum) : logistic(sum);
#else
    return block < 2 ? logistic(sum) : sum;
#endif
}

/* This thread's inputs of second t, 0 beyond the batch; a window's seconds lie one by one. */
INLINE void load(real *inputs, const real *windows, long long apart, int count, int t) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int place = threadIdx.x + i * COLUMNS, window = place / FEATURES;
        inputs[i] = window < count ? windows[window * apart + t * FEATURES + place % FEATURES] : 0;
    }
}

INLINE void lay_down(real (*x)[TILE], const real *inputs) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int place = threadIdx.x + i * COLUMNS;
        if (place < FEATURES * TILE) x[place % FEATURES][place / FEATURES] = inputs[i];
    }
}

/* The state after the last second to `last` [vehicles, batch, HIDDEN]. What `backward` needs of each
   second goes to `kept` [vehicles, tiles, seconds, KEPT, HIDDEN, TILE], unless that is null: r, u,
   h_n, n, h or i, f, g, o, h, c, with h and c as they were before it. Two vehicles' weights are
   `stride` numbers apart, their windows `vehicle_apart`, and two windows of one `apart`. */
KERNEL forward(const real *weights, long long stride, const real *windows, long long vehicle_apart,
               long long apart, real *kept, real *last, long long batch, long long seconds) {
    /* Aligned, so that four numbers are read at once. */
    __shared__ __align__(16) real z[ROWS][TILE];
    __shared__ __align__(16) real sums[COLUMNS][TILE];
    const int me = threadIdx.x, block = me / HIDDEN;
    const int column = gate_of(block) * HIDDEN + me % HIDDEN;
    const long long vehicle = blockIdx.y, begin = (long long)blockIdx.x * TILE;
    const int count = batch - begin < TILE ? batch - begin : TILE;
    weights += vehicle * stride;
    windows += vehicle * vehicle_apart + begin * apart;
    if (kept) kept += (vehicle * gridDim.x + blockIdx.x) * seconds * KEPT * CELLS;
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
    real c[OWN] = {0};
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
        for (int own = 0; own < OWN; own++) {
            const int place = me + own * COLUMNS, unit = place / TILE, b = place % TILE;
            const real h = z[unit][b];
#ifdef LSTM
            const real i = sums[unit][b], f = sums[HIDDEN + unit][b];
            const real g = sums[2 * HIDDEN + unit][b], o = sums[3 * HIDDEN + unit][b];
            const real values[KEPT] = {i, f, g, o, h, c[own]};
            c[own] = f * c[own] + i * g;
            z[unit][b] = o * TANH(c[own]);
#else
            const real r = sums[unit][b], u = sums[HIDDEN + unit][b];
            const real h_n = sums[2 * HIDDEN + unit][b], x_n = sums[3 * HIDDEN + unit][b];
            const real n = TANH(x_n + r * h_n);
            const real values[KEPT] = {r, u, h_n, n, h};
            z[unit][b] = n + u * (h - n);
#endif
            if (kept)
#pragma unroll
                for (int k = 0; k < KEPT; k++) kept[(t * KEPT + k) * CELLS + place] = values[k];
        }
        if (t + 1 < seconds) lay_down(z + HIDDEN, inputs);
        __syncthreads();
    }
    for (int own = 0; own < OWN; own++) {
        const int place = me + own * COLUMNS, unit = place / TILE, b = place % TILE;
        if (b < count) last[(vehicle * batch + begin + b) * HIDDEN + unit] = z[unit][b];
    }
}

/* From `d_last`, the slope of `last`, to the gradient of the weights [vehicles, tiles, SIZE]: each
   block adds up its own windows. d_ is the slope of what follows; a thread goes the way back from
   the HIDDEN sums of its block to the state of one unit, and adds up the gradient of one column. */
KERNEL backward(const real *weights, long long stride, const real *windows, long long vehicle_apart,
                long long apart, const real *kept, const real *d_last, real *gradient,
                long long batch, long long seconds) {
    __shared__ __align__(16) real z[ROWS][TILE];
    __shared__ __align__(16) real d_sums[COLUMNS][TILE];
    __shared__ __align__(16) real parts[COLUMNS][TILE]; /* of d_h, one from each block */
    const int me = threadIdx.x, block = me / HIDDEN, unit = me % HIDDEN;
    const int column = gate_of(block) * HIDDEN + unit;
    const long long vehicle = blockIdx.y, begin = (long long)blockIdx.x * TILE;
    const int count = batch - begin < TILE ? batch - begin : TILE;
    weights += vehicle * stride;
    windows += vehicle * vehicle_apart + begin * apart;
    kept += (vehicle * gridDim.x + blockIdx.x) * seconds * KEPT * CELLS;
    gradient += (vehicle * gridDim.x + blockIdx.x) * SIZE;
    real back[HIDDEN], total[ROWS] = {0}, bias = 0, inputs[LOADS], values[OWN][KEPT];
#pragma unroll
    for (int k = 0; k < HIDDEN; k++)
        back[k] = has_state(block)
                      ? weights[RECURRENT + unit * WIDTH + gate_of(block) * HIDDEN + k]
                      : 0;
    real passing[OWN]; /* of d_h: what goes by the gates */
#ifdef LSTM
    real d_c[OWN] = {0};
#endif
#pragma unroll
    for (int own = 0; own < OWN; own++) {
        const int place = me + own * COLUMNS, b = place % TILE;
        const long long row = vehicle * batch + begin + b;
        passing[own] = b < count ? d_last[row * HIDDEN + place / TILE] : 0;
    }
#pragma unroll
    for (int b = 0; b < TILE; b++) parts[me][b] = 0;
    load(inputs, windows, apart, count, seconds - 1);
#pragma unroll
    for (int own = 0; own < OWN; own++)
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            values[own][k] = kept[((seconds - 1) * KEPT + k) * CELLS + me + own * COLUMNS];
    __syncthreads();
    for (int t = seconds - 1; t >= 0; t--) {
#pragma unroll
        for (int own = 0; own < OWN; own++) {
            const int place = me + own * COLUMNS, to = place / TILE, b = place % TILE;
            const real d_h = passing[own] + parts[to][b] + parts[HIDDEN + to][b] +
                             parts[2 * HIDDEN + to][b] + parts[3 * HIDDEN + to][b];
            const real h = values[own][4];
#ifdef LSTM
            const real i = values[own][0], f = values[own][1], g = values[own][2];
            const real o = values[own][3], c = values[own][5], bent = TANH(f * c + i * g);
            const real d = d_c[own] + d_h * o * (1 - bent * bent);
            d_sums[to][b] = d * g * i * (1 - i);
            d_sums[HIDDEN + to][b] = d * c * f * (1 - f);
            d_sums[2 * HIDDEN + to][b] = d * i * (1 - g * g);
            d_sums[3 * HIDDEN + to][b] = d_h * bent * o * (1 - o);
            d_c[own] = d * f;
            passing[own] = 0;
#else
            const real r = values[own][0], u = values[own][1], h_n = values[own][2];
            const real n = values[own][3], d = d_h * (1 - u) * (1 - n * n);
            d_sums[to][b] = d * h_n * r * (1 - r);
            d_sums[HIDDEN + to][b] = d_h * (h - n) * u * (1 - u);
            d_sums[2 * HIDDEN + to][b] = d * r;
            d_sums[3 * HIDDEN + to][b] = d;
            passing[own] = d_h * u;
#endif
            z[to][b] = h;
        }
        lay_down(z + HIDDEN, inputs);
        __syncthreads();
        if (t > 0) {
            load(inputs, windows, apart, count, t - 1);
#pragma unroll
            for (int own = 0; own < OWN; own++)
#pragma unroll
                for (int k = 0; k < KEPT; k++)
                    values[own][k] = kept[((t - 1) * KEPT + k) * CELLS + me + own * COLUMNS];
        }
        real d_sum[TILE], part[TILE] = {0};
#pragma unroll
        for (int b = 0; b < TILE; b++) {
            d_sum[b] = d_sums[me][b];
            bias += d_sum[b];
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++)
#pragma unroll
            for (int b = 0; b < TILE; b++) total[k] += z[k][b] * d_sum[b];
#pragma unroll
        for (int k = 0; k < HIDDEN; k++)
#pragma unroll
            for (int b = 0; b < TILE; b++) part[b] += back[k] * d_sums[block * HIDDEN + k][b];
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

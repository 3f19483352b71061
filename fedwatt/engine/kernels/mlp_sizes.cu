/* Sizes that follow from those a kernel is compiled for; see mlp.cu. */
constexpr int stride(int numbers) { return (numbers + 23) / 32 * 32 + 8; } /* no two lanes, one bank */
constexpr int tiles(int numbers, int of) { return (numbers + of - 1) / of; }

constexpr int THREADS = 32 * WARPS;
constexpr int TILES1 = UNITS1 <= 16 ? 1 : UNITS1 <= 32 ? 2 : UNITS1 <= 64 ? 4 : 8; /* of 16 units */
constexpr int TILES2 = tiles(UNITS2, 16);
constexpr int BATCHES = tiles(BATCH, 8);                /* tiles of 8 windows */
constexpr int SHARES = WARPS / TILES1;                  /* warps that share the inputs of 16 units */
constexpr int OWN = tiles(INPUTS, 8 * SHARES);          /* tiles of 8 inputs that a warp has */
constexpr int GROUP = WARPS > 8 || OWN % 2 ? 1 : 2;     /* of which so many are worked on at a time */
constexpr int CHUNK = OWN % 3 ? OWN % 2 ? OWN : OWN / 2 : OWN / 3; /* tiles loaded together */
constexpr int WINDOWS = 8 * BATCHES, PADDED1 = 16 * TILES1, PADDED2 = 16 * TILES2;
constexpr int OF_X = stride(8 * SHARES * OWN), OF_1 = stride(PADDED1), OF_2 = stride(PADDED2);
constexpr int BIAS1 = INPUTS * UNITS1, MATRIX2 = BIAS1 + UNITS1, BIAS2 = MATRIX2 + UNITS1 * UNITS2;
constexpr int MATRIX3 = BIAS2 + UNITS2, BIAS3 = MATRIX3 + UNITS2, WEIGHTS = BIAS3 + 1;
constexpr int PARTS = SHARES > 2 ? SHARES : 2;
constexpr int MATRIX1 = WARPS * OWN * 128; /* numbers of the first matrix, padding included */
constexpr int SCRATCH = (MATRIX1 + WEIGHTS - BIAS1 + 3) / 4 * 4;

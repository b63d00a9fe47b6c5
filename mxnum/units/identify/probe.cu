// Answers the cases of `mxnum unit probe` on a GPU: d = a*b + c by one instruction for each case.
//
//     nvcc -gencode arch=compute_90a,code=sm_90a -o probe probe.cu
//     nvcc -gencode arch=compute_89,code=sm_89 -DNO_WGMMA -o probe probe.cu
//     nvcc -gencode arch=compute_80,code=sm_80 -DNO_WGMMA -DNO_FP8 -o probe probe.cu
//     hipcc -x hip --offload-arch=gfx950 -o probe probe.cu
//     ./probe mma_e4m3_float32 < cases.txt > answers.txt
//
// Row 0 of A holds a, column 0 of B holds b; all other numbers are 0. `./probe` alone lists the names.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#ifdef __HIP__
#include <hip/hip_runtime.h>
#define cudaMalloc hipMalloc
#define cudaMemcpy hipMemcpy
#define cudaMemcpyHostToDevice hipMemcpyHostToDevice
#define cudaMemcpyDeviceToHost hipMemcpyDeviceToHost
#define cudaGetLastError hipGetLastError
#define cudaDeviceSynchronize hipDeviceSynchronize
#define cudaGetErrorString hipGetErrorString
#define cudaSuccess hipSuccess
#endif

// A case: 32 bytes of a, 32 bytes of b, the bits of c, and then those of d.
struct Case { uint32_t a[8], b[8], c, d; };
struct Instruction { const char *name; int bits, k; void (*kernel)(Case *); int threads; };

#ifdef __HIP__

typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef short short4_ __attribute__((ext_vector_type(4)));
typedef float float4_ __attribute__((ext_vector_type(4)));

// Lane 16 q + i holds the quarter q of row i of A and of column i of B; lane 0 holds D[0][0].
#define MFMA(NAME, TYPE, CALL)                                                          \
    __global__ void NAME(Case *cases) {                                                 \
        Case &one = cases[blockIdx.x];                                                  \
        int quarter = threadIdx.x / 16;                                                 \
        TYPE a = {}, b = {};                                                            \
        if (threadIdx.x % 16 == 0) {                                                    \
            memcpy(&a, one.a + 2 * quarter, 8);                                         \
            memcpy(&b, one.b + 2 * quarter, 8);                                         \
        }                                                                               \
        float4_ d = {};                                                                 \
        if (threadIdx.x == 0) memcpy(&d, &one.c, 4);                                    \
        d = CALL(a, b, d, 0, 0, 0);                                                     \
        if (threadIdx.x == 0) memcpy(&one.d, &d, 4);                                    \
    }
MFMA(mfma_float16, half4, __builtin_amdgcn_mfma_f32_16x16x16f16)
MFMA(mfma_bfloat16, short4_, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k)
MFMA(mfma_e4m3, long, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8)
MFMA(mfma_e5m2, long, __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8)

static const Instruction instructions[] = {
    {"mfma_float16_float32", 16, 16, mfma_float16, 64}, {"mfma_bfloat16_float32", 16, 16, mfma_bfloat16, 64},
    {"mfma_e4m3_float32", 8, 32, mfma_e4m3, 64}, {"mfma_e5m2_float32", 8, 32, mfma_e5m2, 64},
};

#else

// Lanes 0 to 3 hold row 0 of A (registers 0 and 2) and column 0 of B; lane 0 holds D[0][0].
#define MMA(NAME, TEXT, COUNT)                                                          \
    __global__ void NAME(Case *cases) {                                                 \
        Case &one = cases[blockIdx.x];                                                  \
        int i = threadIdx.x % 4;                                                        \
        bool used = threadIdx.x < 4;                                                    \
        uint32_t a0 = used ? one.a[i] : 0, a2 = used ? one.a[i + 4] : 0;                \
        uint32_t b0 = used ? one.b[i] : 0, b1 = used ? one.b[i + 4] : 0;                \
        uint32_t d[4] = {threadIdx.x == 0 ? one.c : 0, 0, 0, 0};                        \
        MMA_##COUNT(TEXT);                                                              \
        if (threadIdx.x == 0) one.d = d[0];                                             \
    }
#define MMA_4(TEXT)                                                                     \
    asm volatile("mma.sync.aligned." TEXT " {%0,%1,%2,%3},{%4,%5,%6,%5},{%7,%8},{%0,%1,%2,%3};" \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1))
#define MMA_2(TEXT)                                                                     \
    asm volatile("mma.sync.aligned." TEXT " {%0,%1},{%2,%3,%4,%3},{%5,%6},{%0,%1};"     \
                 : "+r"(d[0]), "+r"(d[1]) : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1))
// Float accumulators need "f" registers.
#define MMA_F(TEXT)                                                                     \
    float f[4];                                                                         \
    memcpy(f, d, 16);                                                                   \
    asm volatile("mma.sync.aligned." TEXT " {%0,%1,%2,%3},{%4,%5,%6,%5},{%7,%8},{%0,%1,%2,%3};" \
                 : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])                        \
                 : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1));                          \
    memcpy(d, f, 16)

MMA(mma_float16, "m16n8k16.row.col.f32.f16.f16.f32", F)
MMA(mma_float16_acc16, "m16n8k16.row.col.f16.f16.f16.f16", 2)
MMA(mma_bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32", F)
MMA(mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", F)
MMA(mma_int8, "m16n8k32.row.col.s32.s8.s8.s32", 4)
#ifndef NO_FP8
MMA(mma_e4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32", F)
MMA(mma_e5m2, "m16n8k32.row.col.f32.e5m2.e5m2.f32", F)
MMA(mma_e4m3_acc16, "m16n8k32.row.col.f16.e4m3.e4m3.f16", 2)
MMA(mma_e5m2_acc16, "m16n8k32.row.col.f16.e5m2.e5m2.f16", 2)
#endif

#ifndef NO_WGMMA
// B lies in shared memory without swizzle: two core matrices of 8 columns by 16 bytes of k.
#define WGMMA(NAME, SHAPE, KIND, TAIL)                                                  \
    __global__ void NAME(Case *cases) {                                                 \
        __shared__ __align__(128) uint32_t b[64];                                       \
        Case &one = cases[blockIdx.x];                                                  \
        int i = threadIdx.x % 4;                                                        \
        bool used = threadIdx.x < 4;                                                    \
        uint32_t a0 = used ? one.a[i] : 0, a2 = used ? one.a[i + 4] : 0;                \
        if (threadIdx.x < 64) b[threadIdx.x] = 0;                                       \
        __syncthreads();                                                                \
        if (used) { b[i] = one.b[i]; b[32 + i] = one.b[i + 4]; }                        \
        asm volatile("fence.proxy.async;" ::: "memory");                                \
        __syncthreads();                                                                \
        uint64_t at = ((uint64_t)__cvta_generic_to_shared(b) & 0x3FFFF) >> 4;           \
        uint64_t descriptor = at | (128ull >> 4) << 16 | (128ull >> 4) << 32;           \
        uint32_t d[4] = {threadIdx.x == 0 ? one.c : 0, 0, 0, 0};                        \
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                         \
        WGMMA_##KIND(SHAPE, TAIL);                                                      \
        if (threadIdx.x == 0) one.d = d[0];                                             \
    }
#define WGMMA_END                                                                       \
    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
#define WGMMA_F(SHAPE, TAIL)                                                            \
    float f[4];                                                                         \
    memcpy(f, d, 16);                                                                   \
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE " {%0,%1,%2,%3},{%4,%5,%6,%5},%7,1,1,1" TAIL ";" WGMMA_END \
                 : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])                        \
                 : "r"(a0), "r"(0), "r"(a2), "l"(descriptor) : "memory");                \
    memcpy(d, f, 16)
#define WGMMA_2(SHAPE, TAIL)                                                            \
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE " {%0,%1},{%2,%3,%4,%3},%5,1,1,1" TAIL ";" WGMMA_END \
                 : "+r"(d[0]), "+r"(d[1]) : "r"(a0), "r"(0), "r"(a2), "l"(descriptor) : "memory")
#define WGMMA_I(SHAPE, TAIL)                                                            \
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE " {%0,%1,%2,%3},{%4,%5,%6,%5},%7,1" TAIL ";" WGMMA_END \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                        \
                 : "r"(a0), "r"(0), "r"(a2), "l"(descriptor) : "memory")

WGMMA(wgmma_float16, "m64n8k16.f32.f16.f16", F, ",0")
WGMMA(wgmma_float16_acc16, "m64n8k16.f16.f16.f16", 2, ",0")
WGMMA(wgmma_bfloat16, "m64n8k16.f32.bf16.bf16", F, ",0")
WGMMA(wgmma_tf32, "m64n8k8.f32.tf32.tf32", F, "")
WGMMA(wgmma_e4m3, "m64n8k32.f32.e4m3.e4m3", F, "")
WGMMA(wgmma_e5m2, "m64n8k32.f32.e5m2.e5m2", F, "")
WGMMA(wgmma_e4m3_acc16, "m64n8k32.f16.e4m3.e4m3", 2, "")
WGMMA(wgmma_e5m2_acc16, "m64n8k32.f16.e5m2.e5m2", 2, "")
WGMMA(wgmma_int8, "m64n8k32.s32.s8.s8", I, "")
#endif

static const Instruction instructions[] = {
    {"mma_float16_float32", 16, 16, mma_float16, 32}, {"mma_float16_float16", 16, 16, mma_float16_acc16, 32},
    {"mma_bfloat16_float32", 16, 16, mma_bfloat16, 32}, {"mma_tf32_float32", 32, 8, mma_tf32, 32},
    {"mma_int8_int32", 8, 32, mma_int8, 32},
#ifndef NO_FP8
    {"mma_e4m3_float32", 8, 32, mma_e4m3, 32}, {"mma_e5m2_float32", 8, 32, mma_e5m2, 32},
    {"mma_e4m3_float16", 8, 32, mma_e4m3_acc16, 32}, {"mma_e5m2_float16", 8, 32, mma_e5m2_acc16, 32},
#endif
#ifndef NO_WGMMA
    {"wgmma_float16_float32", 16, 16, wgmma_float16, 128}, {"wgmma_float16_float16", 16, 16, wgmma_float16_acc16, 128},
    {"wgmma_bfloat16_float32", 16, 16, wgmma_bfloat16, 128}, {"wgmma_tf32_float32", 32, 8, wgmma_tf32, 128},
    {"wgmma_int8_int32", 8, 32, wgmma_int8, 128},
    {"wgmma_e4m3_float32", 8, 32, wgmma_e4m3, 128}, {"wgmma_e5m2_float32", 8, 32, wgmma_e5m2, 128},
    {"wgmma_e4m3_float16", 8, 32, wgmma_e4m3_acc16, 128}, {"wgmma_e5m2_float16", 8, 32, wgmma_e5m2_acc16, 128},
#endif
};

#endif

// Write k codes into 32 bytes; a TF32 code is the upper 19 bits of a word.
static char *pack(char *text, uint32_t *words, const Instruction &one) {
    for (int i = 0; i < one.k; i++) {
        uint32_t code = strtoul(text, &text, 16);
        int per_word = 32 / one.bits;
        words[i / per_word] |= one.bits == 32 ? code << 13 : code << i % per_word * one.bits;
    }
    return text;
}

int main(int count, char **arguments) {
    const Instruction *found = nullptr;
    for (const Instruction &one : instructions) {
        if (count < 2) puts(one.name);
        else if (!strcmp(one.name, arguments[1])) found = &one;
    }
    if (count < 2) return 0;
    if (!found) return fprintf(stderr, "No instruction %s.\n", arguments[1]), 2;
    std::vector<Case> cases;
    std::vector<std::string> lines;
    std::string line;
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n') { line += (char)c; continue; }
        lines.push_back(line);
        if (!line.empty() && line[0] != '#') {
            Case one = {};
            char *rest = pack(pack(&line[0], one.a, *found), one.b, *found);
            one.c = strtoul(rest, nullptr, 16);
            cases.push_back(one);
        }
        line.clear();
    }
    Case *device = nullptr;
    size_t size = cases.size() * sizeof(Case);
    auto error = cudaMalloc((void **)&device, size);
    if (error == cudaSuccess) error = cudaMemcpy(device, cases.data(), size, cudaMemcpyHostToDevice);
    if (error == cudaSuccess) {
        found->kernel<<<cases.size(), found->threads>>>(device);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) error = cudaMemcpy(cases.data(), device, size, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return fprintf(stderr, "%s\n", cudaGetErrorString(error)), 1;
    bool half = strstr(found->name, "_float16") && !strstr(found->name, "_float32");
    size_t index = 0;
    for (const std::string &text : lines) {
        if (text.empty() || text[0] == '#') puts(text.c_str());
        else printf(half ? "%s %04X\n" : "%s %08X\n", text.c_str(), cases[index].d & (half ? 0xFFFF : ~0u)), index++;
    }
}

// A CUDA runtime without a device: memory is host memory nobody writes, kernels do nothing but are counted.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <map>
#include <mutex>
#include <set>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <vector>
#define X extern "C" __attribute__((visibility("default")))
#undef cudaGetDeviceProperties
static std::mutex mu;
static std::map<const void *, std::string> *names() {
    static auto *m = new std::map<const void *, std::string>;
    return m;
}
static std::map<void *, size_t> *blocks() {
    static auto *m = new std::map<void *, size_t>;
    return m;
}
static std::map<std::string, long> *counts() {
    static auto *m = new std::map<std::string, long>;
    return m;
}
static size_t used = 0, peak_used = 0;
static const size_t TOTAL = ((size_t)(getenv("NC_TOTAL_MB") ? atol(getenv("NC_TOTAL_MB")) : 143771)) << 20;
static long total_launch = 0;
static thread_local cudaError_t last = cudaSuccess;
static std::set<cudaStream_t> *capt() {
    static auto *s = new std::set<cudaStream_t>;
    return s;
}
static bool invalid = false;
static long cap_nodes = 0;
static unsigned long long cap_id = 0;
static std::map<cudaEvent_t, bool> *evcap() {
    static auto *m = new std::map<cudaEvent_t, bool>;
    return m;
}
static thread_local cudaStreamCaptureMode tmode = cudaStreamCaptureModeGlobal;
static cudaStreamCaptureMode capmode = cudaStreamCaptureModeGlobal;
static bool active() { return !capt()->empty(); }
static int trace_errors = 1;
static void bt(const char *what) {
    if (!trace_errors)
        return;
    fprintf(stderr, "[nullcuda] %s\n", what);
}
static cudaError_t fail(cudaError_t e, const char *what) {
    last = e;
    bt(what);
    (*counts())[std::string("!ERR ") + what]++;
    if (active())
        invalid = true;
    return e;
}
static void count(const std::string &n) {
    std::lock_guard<std::mutex> l(mu);
    (*counts())[n]++;
    total_launch++;
}
static void node(cudaStream_t s, const char *what) {
    if (active()) {
        if (capt()->count(s))
            cap_nodes++;
        else {
            std::lock_guard<std::mutex> l(mu);
            (*counts())[std::string("!OUTSIDE-CAPTURE ") + what]++;
        }
    }
}
X long nc_total() { return total_launch; }
X void nc_reset() {
    std::lock_guard<std::mutex> l(mu);
    counts()->clear();
    total_launch = 0;
}
X size_t nc_used() { return used; }
X size_t nc_peak() { return peak_used; }
X void nc_peak_reset() { peak_used = used; }
X void nc_trace(int on) { trace_errors = on; }
X int nc_dump(char *buf, int n) {
    std::lock_guard<std::mutex> l(mu);
    std::string s;
    for (auto &p : *counts())
        s += std::to_string(p.second) + "\t" + p.first + "\n";
    strncpy(buf, s.c_str(), n - 1);
    buf[n - 1] = 0;
    return s.size();
}
X void nc_count(const char *n) { count(n); }
X void nc_node(void *stream, const char *n) {
    count(n);
    node((cudaStream_t)stream, n);
}
X int nc_capturing() { return active(); }
// registration
X void **__cudaRegisterFatBinary(void *) {
    static void *h;
    return &h;
}
X void __cudaRegisterFatBinaryEnd(void **) {}
X void __cudaUnregisterFatBinary(void **) {}
X void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
X void __cudaRegisterManagedVar(void **, void **, char *, const char *, int, size_t, int, int) {}
X char __cudaInitModule(void **) { return 1; }
X void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, void *, void *, void *, void *,
                              int *) {
    (*names())[host] = name;
}
struct Conf {
    dim3 g, b;
    size_t s;
    void *st;
};
static thread_local std::vector<Conf> stack_;
X unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t s, void *st) {
    stack_.push_back({g, b, s, st});
    return 0;
}
X cudaError_t __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *s, void *st) {
    Conf c = stack_.back();
    stack_.pop_back();
    *g = c.g;
    *b = c.b;
    *s = c.s;
    *(void **)st = c.st;
    return cudaSuccess;
}
static void launch(const void *f, cudaStream_t s) {
    std::string n;
    {
        std::lock_guard<std::mutex> l(mu);
        auto it = names()->find(f);
        n = it == names()->end() ? "?" : it->second;
    }
    count(n);
    node(s, n.c_str());
}
X cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *f) {
    *k = (cudaKernel_t)f;
    return cudaSuccess;
}
X cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void **, size_t sh, cudaStream_t s) {
    if (g.x == 0 || g.y == 0 || g.z == 0 || b.x * b.y * b.z > 1024)
        return fail(cudaErrorInvalidConfiguration, "launch: invalid configuration");
    launch((const void *)k, s);
    return cudaSuccess;
}
X cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **, size_t, cudaStream_t s) {
    launch(f, s);
    return cudaSuccess;
}
X cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **) {
    launch(f, c->stream);
    return cudaSuccess;
}
X cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3, dim3, void **, size_t, cudaStream_t s) {
    launch(f, s);
    return cudaSuccess;
}
// device
X cudaError_t cudaGetDeviceCount(int *n) {
    *n = 1;
    return cudaSuccess;
}
X cudaError_t cudaGetDevice(int *d) {
    *d = 0;
    return cudaSuccess;
}
X cudaError_t cudaSetDevice(int) { return cudaSuccess; }
X cudaError_t cudaDriverGetVersion(int *v) {
    *v = 13000;
    return cudaSuccess;
}
X cudaError_t cudaRuntimeGetVersion(int *v) {
    *v = 13000;
    return cudaSuccess;
}
X cudaError_t cudaGetLastError() {
    auto e = last;
    last = cudaSuccess;
    return e;
}
X cudaError_t cudaPeekAtLastError() { return last; }
X const char *cudaGetErrorString(cudaError_t e) {
    return e == 900   ? "operation not permitted when stream is capturing"
           : e == 901 ? "operation failed due to a previous error during capture"
           : e == 2   ? "out of memory"
                      : "null cuda error";
}
X const char *cudaGetErrorName(cudaError_t e) {
    return e == 900   ? "cudaErrorStreamCaptureUnsupported"
           : e == 901 ? "cudaErrorStreamCaptureInvalidated"
                      : "cudaError";
}
X cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "NVIDIA H200");
    p->totalGlobalMem = TOTAL;
    p->sharedMemPerBlock = 49152;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->memPitch = 2147483647;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->major = 9;
    p->minor = 0;
    p->textureAlignment = 512;
    p->multiProcessorCount = 132;
    p->unifiedAddressing = 1;
    p->memoryBusWidth = 6144;
    p->l2CacheSize = 60 << 20;
    p->maxThreadsPerMultiProcessor = 2048;
    p->sharedMemPerMultiprocessor = 233472;
    p->regsPerMultiprocessor = 65536;
    p->concurrentKernels = 1;
    p->asyncEngineCount = 3;
    p->cooperativeLaunch = 1;
    p->sharedMemPerBlockOptin = 232448;
    p->maxBlocksPerMultiProcessor = 32;
    p->canMapHostMemory = 1;
    p->streamPrioritiesSupported = 1;
    return cudaSuccess;
}
X cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int) {
    switch ((int)a) {
    case 1:
        *v = 1024;
        break;
    case 2:
    case 3:
        *v = 1024;
        break;
    case 4:
        *v = 64;
        break;
    case 5:
        *v = 2147483647;
        break;
    case 6:
    case 7:
        *v = 65535;
        break;
    case 8:
        *v = 49152;
        break;
    case 10:
        *v = 32;
        break;
    case 12:
        *v = 65536;
        break;
    case 13:
        *v = 1980000;
        break;
    case 16:
        *v = 132;
        break;
    case 38:
        *v = 60 << 20;
        break;
    case 39:
        *v = 2048;
        break;
    case 75:
        *v = 9;
        break;
    case 76:
        *v = 0;
        break;
    case 81:
        *v = 233472;
        break;
    case 82:
        *v = 65536;
        break;
    case 97:
        *v = 232448;
        break;
    case 106:
        *v = 32;
        break;
    case 111:
        *v = 1024;
        break;
    default:
        *v = 1;
    }
    return cudaSuccess;
}
X cudaError_t cudaDeviceGetPCIBusId(char *b, int n, int) {
    snprintf(b, n, "0000:00:00.0");
    return cudaSuccess;
}
X cudaError_t cudaDeviceGetStreamPriorityRange(int *a, int *b) {
    if (a)
        *a = 0;
    if (b)
        *b = -5;
    return cudaSuccess;
}
X cudaError_t cudaDeviceCanAccessPeer(int *v, int, int) {
    *v = 0;
    return cudaSuccess;
}
X cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
X cudaError_t cudaDeviceSynchronize() {
    count("!deviceSync");
    if (active())
        return fail(cudaErrorStreamCaptureUnsupported, "cudaDeviceSynchronize in capture");
    return cudaSuccess;
}
X cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int) {
    *p = 0;
    return cudaSuccess;
}
X cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *m) {
    auto o = tmode;
    tmode = *m;
    *m = o;
    return cudaSuccess;
}
static bool unsafe() {
    return active() && capmode != cudaStreamCaptureModeRelaxed && tmode != cudaStreamCaptureModeRelaxed;
}
// memory
X cudaError_t cudaMalloc(void **p, size_t n) {
    if (unsafe())
        return fail(cudaErrorStreamCaptureUnsupported, "cudaMalloc in capture (not relaxed)");
    std::lock_guard<std::mutex> l(mu);
    if (used + n > TOTAL - ((size_t)500 << 20)) {
        *p = 0;
        last = cudaErrorMemoryAllocation;
        (*counts())["!OOM cudaMalloc"]++;
        return cudaErrorMemoryAllocation;
    }
    size_t r = (n + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
    void *q = mmap(0, r + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (q == MAP_FAILED) {
        *p = 0;
        last = cudaErrorMemoryAllocation;
        return cudaErrorMemoryAllocation;
    }
    void *a = (void *)(((uintptr_t)q + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
    (*blocks())[a] = n;
    used += n;
    if (used > peak_used)
        peak_used = used;
    (*counts())["#cudaMalloc"]++;
    *p = a;
    return cudaSuccess;
}
X cudaError_t cudaFree(void *p) {
    if (!p)
        return cudaSuccess;
    if (unsafe())
        return fail(cudaErrorStreamCaptureUnsupported, "cudaFree in capture (not relaxed)");
    std::lock_guard<std::mutex> l(mu);
    auto it = blocks()->find(p);
    if (it != blocks()->end()) {
        used -= it->second;
        munmap(p, (it->second + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1));
        blocks()->erase(it);
        (*counts())["#cudaFree"]++;
    }
    return cudaSuccess;
}
X cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
X cudaError_t cudaFreeAsync(void *p, cudaStream_t) { return cudaFree(p); }
X cudaError_t cudaMallocManaged(void **p, size_t n, unsigned) { return cudaMalloc(p, n); }
X cudaError_t cudaMemGetInfo(size_t *f, size_t *t) {
    *t = TOTAL;
    *f = TOTAL - ((size_t)500 << 20) - used;
    return cudaSuccess;
}
static std::set<void *> *pinned() {
    static auto *s = new std::set<void *>;
    return s;
}
X cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) {
    *p = malloc(n);
    pinned()->insert(*p);
    return cudaSuccess;
}
X cudaError_t cudaMallocHost(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
X cudaError_t cudaFreeHost(void *p) {
    pinned()->erase(p);
    free(p);
    return cudaSuccess;
}
X cudaError_t cudaHostRegister(void *, size_t, unsigned) { return cudaSuccess; }
X cudaError_t cudaHostUnregister(void *) { return cudaSuccess; }
static bool on_device(const void *p) {
    std::lock_guard<std::mutex> l(mu);
    auto it = blocks()->upper_bound((void *)p);
    if (it == blocks()->begin())
        return false;
    --it;
    return (char *)p < (char *)it->first + it->second;
}
static const char *kind(const void *d, const void *s) {
    bool a = on_device(d), b = on_device(s);
    return a && b ? "Memcpy DtoD" : a ? "Memcpy HtoD" : b ? "Memcpy DtoH" : "Memcpy HtoH";
}
static void docopy(void *d, const void *s, size_t n) {
    if (on_device(d) && on_device(s))
        return;
    memcpy(d, s, n);
}
X cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind, cudaStream_t st) {
    const char *k = kind(d, s);
    count(k);
    node(st, k);
    if (active() && capt()->count(st) && (!strcmp(k, "Memcpy HtoD") || !strcmp(k, "Memcpy DtoH"))) {
        const void *h = on_device(d) ? s : d;
        bool pin = false;
        for (auto p : *pinned())
            if (p == h)
                pin = true;
        (*counts())[std::string("!IN-CAPTURE ") + k + (pin ? " pinned" : " pageable")]++;
    }
    docopy(d, s, n);
    return cudaSuccess;
}
X cudaError_t cudaMemcpy(void *d, const void *s, size_t n, cudaMemcpyKind) {
    count("!syncMemcpy");
    if (active())
        return fail(cudaErrorStreamCaptureImplicit, "cudaMemcpy (sync) in capture");
    docopy(d, s, n);
    return cudaSuccess;
}
X cudaError_t cudaMemcpyPeerAsync(void *d, int, const void *s, int, size_t n, cudaStream_t st) {
    return cudaMemcpyAsync(d, s, n, cudaMemcpyDefault, st);
}
X cudaError_t cudaMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, cudaMemcpyKind, cudaStream_t st) {
    count("Memcpy 2D");
    node(st, "Memcpy 2D");
    return cudaSuccess;
}
X cudaError_t cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
X cudaError_t cudaGetSymbolAddress(void **p, const void *) {
    static char b[1 << 16];
    *p = b;
    return cudaSuccess;
}
X cudaError_t cudaMemset(void *, int, size_t) {
    count("Memset");
    return cudaSuccess;
}
X cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t s) {
    count("Memset");
    node(s, "Memset");
    return cudaSuccess;
}
X cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
    memset(a, 0, sizeof *a);
    a->type = on_device(p)                 ? cudaMemoryTypeDevice
              : pinned()->count((void *)p) ? cudaMemoryTypeHost
                                           : cudaMemoryTypeUnregistered;
    a->devicePointer = (void *)p;
    a->hostPointer = (void *)p;
    return cudaSuccess;
}
X cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *) {
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->ptxVersion = 90;
    a->binaryVersion = 90;
    a->maxDynamicSharedSizeBytes = 232448;
    return cudaSuccess;
}
X cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
X cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *, int, size_t, unsigned) {
    *n = 2;
    return cudaSuccess;
}
X cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int, size_t) {
    *n = 2;
    return cudaSuccess;
}
// streams
static uintptr_t next_id = 0x1000;
X cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int) {
    *s = (cudaStream_t)(next_id += 16);
    return cudaSuccess;
}
X cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithPriority(s, 0, 0); }
X cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) { return cudaStreamCreateWithPriority(s, 0, 0); }
X cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
X cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    count("!streamSync");
    if (active() && (capt()->count(s) || unsafe()))
        return fail(cudaErrorStreamCaptureUnsupported, "cudaStreamSynchronize in capture");
    return cudaSuccess;
}
X cudaError_t cudaStreamQuery(cudaStream_t s) {
    if (active() && capt()->count(s))
        return fail(cudaErrorStreamCaptureUnsupported, "cudaStreamQuery in capture");
    return cudaSuccess;
}
X cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    bool c = (*evcap())[e];
    if (active()) {
        if (c)
            capt()->insert(s);
        else if (capt()->count(s))
            return fail(cudaErrorStreamCaptureIsolation, "wait on an event of before the capture");
    }
    return cudaSuccess;
}
X cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *st) {
    *st = capt()->count(s) ? (invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive)
                           : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
X cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus *st, unsigned long long *id,
                                       cudaGraph_t *g, const cudaGraphNode_t **d, const cudaGraphEdgeData **e,
                                       size_t *n) {
    cudaStreamIsCapturing(s, st);
    if (id)
        *id = cap_id;
    if (g)
        *g = (cudaGraph_t)0x77;
    if (d)
        *d = 0;
    if (e)
        *e = 0;
    if (n)
        *n = 0;
    return cudaSuccess;
}
struct G {
    long nodes;
};
X cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode m) {
    if (s == 0)
        return fail(cudaErrorStreamCaptureUnsupported, "capture of the legacy stream");
    capt()->clear();
    capt()->insert(s);
    capmode = m;
    invalid = false;
    cap_nodes = 0;
    cap_id++;
    return cudaSuccess;
}
X cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
    capt()->clear();
    if (invalid) {
        *g = 0;
        invalid = false;
        last = cudaErrorStreamCaptureInvalidated;
        return cudaErrorStreamCaptureInvalidated;
    }
    *g = (cudaGraph_t) new G{cap_nodes};
    return cudaSuccess;
}
X long nc_graph_nodes() { return cap_nodes; }
X cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long) {
    *e = (cudaGraphExec_t) new G(*(G *)g);
    return cudaSuccess;
}
X cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long f) {
    return cudaGraphInstantiateWithFlags(e, g, f);
}
X cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *, size_t *n) {
    *n = ((G *)g)->nodes;
    return cudaSuccess;
}
X cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
X cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
X cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char *, unsigned) { return cudaSuccess; }
X cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t *, cudaGraphEdgeData *, size_t *n) {
    *n = 0;
    return cudaSuccess;
}
X cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t s) {
    count("#graphLaunch");
    return cudaSuccess;
}
X cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void *d, unsigned) {
    f(s, cudaSuccess, d);
    return cudaSuccess;
}
X cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f, void *d) {
    f(d);
    return cudaSuccess;
}
// events
X cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    *e = (cudaEvent_t)(next_id += 16);
    return cudaSuccess;
}
X cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
X cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
#include <chrono>
static std::map<cudaEvent_t, double> *evt() {
    static auto *m = new std::map<cudaEvent_t, double>;
    return m;
}
X cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    (*evt())[e] =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
    (*evcap())[e] = active() && capt()->count(s);
    return cudaSuccess;
}
X cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) { return cudaEventRecord(e, s); }
X cudaError_t cudaEventQuery(cudaEvent_t e) {
    if (active() && (*evcap())[e])
        return fail(cudaErrorStreamCaptureUnsupported, "cudaEventQuery in capture");
    return cudaSuccess;
}
X cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    if (active())
        return fail(cudaErrorStreamCaptureUnsupported, "cudaEventSynchronize in capture");
    return cudaSuccess;
}
X cudaError_t cudaEventElapsedTime(float *f, cudaEvent_t a, cudaEvent_t b) {
    *f = (float)((*evt())[b] - (*evt())[a]);
    return cudaSuccess;
}
static int zero_fn() { return 0; }
X int nc_zero() { return 0; }
X cudaError_t cudaGetDriverEntryPointByVersion(const char *n, void **f, unsigned, unsigned long long,
                                               cudaDriverEntryPointQueryResult *r) {
    *f = (void *)zero_fn;
    if (r)
        *r = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
X cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *, void *) { return cudaSuccess; }
X cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *, cudaEvent_t) { return cudaSuccess; }
X cudaError_t cudaIpcOpenMemHandle(void **, cudaIpcMemHandle_t, unsigned) { return cudaSuccess; }
X cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *, cudaIpcEventHandle_t) { return cudaSuccess; }
X cudaError_t cudaIpcCloseMemHandle(void *) { return cudaSuccess; }

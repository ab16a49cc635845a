/* An execution provider for ONNX Runtime that claims the nodes whose names begin with a prefix, wants them in NHWC, and computes nothing.

       gcc -shared -fPIC -O1 -o libclaiming.so claiming_provider.c

   claiming.py registers it, names the claimed nodes, and reads what ONNX Runtime's own layout transformer makes of the
   graph from the optimized model that a session saves. Option `prefix`: what the claimed nodes' names begin with.

   ONNX Runtime hands a plugin tables of functions, to which every version only appends; so the few that are used are
   declared here with their places, and no header is needed. The interface, with kernels, exists since version 1.24. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 24, NAME_ROOM = 512 };
enum { FAIL = 1, NOT_IMPLEMENTED = 9 }; /* error codes */
enum { CPU = 0 };                       /* the type of a hardware device */
enum { NHWC = 1 };                      /* a data layout */
enum { ANY_VERSION = 1000 };            /* later than all versions of operators */

static const char PROVIDER[] = "ClaimingExecutionProvider";
static const char PREFIX_OPTION[] = "ep.claimingexecutionprovider.prefix";
static const char CONVERTED[] = "com.ms.internal.nhwc"; /* the domain of what the layout transformer has converted */

typedef void Status; /* NULL is success */
typedef void *const Table[];

/* Places in OrtApi, in OrtEpApi, and in the tables that a provider fills. */
enum {
  CREATE_STATUS = 0,
  GET_SESSION_CONFIG_ENTRY = 238,
  HARDWARE_DEVICE_TYPE = 307,
  GET_EP_API = 317,
  GRAPH_GET_NUM_NODES = 344,
  GRAPH_GET_NODES = 345,
  NODE_GET_NAME = 349,
  NODE_GET_DOMAIN = 351,
};
enum {
  CREATE_EP_DEVICE = 0,
  ADD_SINGLE_NODE = 3,
  CREATE_KERNEL_REGISTRY = 18,
  RELEASE_KERNEL_REGISTRY = 19,
  ADD_KERNEL = 20,
  CREATE_KERNEL_DEF_BUILDER = 21,
  RELEASE_KERNEL_DEF_BUILDER = 22,
  SET_OPERATOR_TYPE = 23,
  SET_DOMAIN = 24,
  SET_SINCE_VERSION = 25,
  SET_EXECUTION_PROVIDER = 26,
  BUILD_KERNEL_DEF = 32,
  RELEASE_KERNEL_DEF = 33,
};
enum { EP_GET_NAME = 1, EP_GET_CAPABILITY = 2, EP_GET_PREFERRED_DATA_LAYOUT = 5, EP_GET_KERNEL_REGISTRY = 13 };
enum {
  FACTORY_GET_NAME = 1,
  FACTORY_GET_VENDOR = 2,
  FACTORY_GET_SUPPORTED_DEVICES = 3,
  FACTORY_CREATE_EP = 4,
  FACTORY_RELEASE_EP = 5,
  FACTORY_GET_VENDOR_ID = 6,
  FACTORY_GET_VERSION = 7,
  FACTORY_CREATE_DATA_TRANSFER = 11,
  FACTORY_IS_STREAM_AWARE = 12,
};
enum { KERNEL_COMPUTE = 1, KERNEL_RELEASE = 2 };

/* A table that a provider fills begins with the version it was written for; what stays NULL is not offered. */
typedef union {
  uint32_t version;
  void *call;
} Entry;

typedef struct {
  Entry table[32];
} Factory;

typedef struct {
  Entry table[32];
  void *registry;
  char prefix[NAME_ROOM];
} Provider;

typedef struct {
  Entry table[8];
} Kernel;

static const Table *api, *ep_api;

#define CALL(table, place, result, ...) ((result(*)(__VA_ARGS__))(*table)[place])
#define TRY(call)                     \
  do {                                \
    Status *failed = (call);          \
    if (failed != NULL) return failed; \
  } while (0)

static Status *status(int code, const char *message) {
  return CALL(api, CREATE_STATUS, Status *, int, const char *)(code, message);
}

/* Kernels: they exist so that a session with them can be made and saved. */

static Status *compute(Kernel *self, void *context) {
  (void)self, (void)context;
  return status(NOT_IMPLEMENTED, "the claiming provider computes nothing");
}

static void release_kernel(Kernel *self) { free(self); }

static Status *create_kernel(void *state, const void *info, Kernel **made) {
  (void)state, (void)info;
  Kernel *kernel = calloc(1, sizeof *kernel);
  if (kernel == NULL) return status(FAIL, "out of memory");
  kernel->table[0].version = VERSION;
  kernel->table[KERNEL_COMPUTE].call = compute;
  kernel->table[KERNEL_RELEASE].call = release_kernel;
  *made = kernel;
  return NULL;
}

static const char *const OPERATORS[] = {
    "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "BatchNormalization", "InstanceNormalization", "LRN",
    "AveragePool", "LpPool", "MaxPool", "MaxUnpool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool",
    "GridSample", "DepthToSpace", "SpaceToDepth", "Resize", "QLinearAveragePool", "QLinearGlobalAveragePool",
};

static Status *add_kernel(void *registry, const char *operator_type, const char *domain) {
  void *builder = NULL, *definition = NULL;
  TRY(CALL(ep_api, CREATE_KERNEL_DEF_BUILDER, Status *, void **)(&builder));
  TRY(CALL(ep_api, SET_OPERATOR_TYPE, Status *, void *, const char *)(builder, operator_type));
  TRY(CALL(ep_api, SET_DOMAIN, Status *, void *, const char *)(builder, domain));
  TRY(CALL(ep_api, SET_SINCE_VERSION, Status *, void *, int, int)(builder, 1, ANY_VERSION));
  TRY(CALL(ep_api, SET_EXECUTION_PROVIDER, Status *, void *, const char *)(builder, PROVIDER));
  TRY(CALL(ep_api, BUILD_KERNEL_DEF, Status *, void *, void **)(builder, &definition));
  TRY(CALL(ep_api, ADD_KERNEL, Status *, void *, const void *, void *, void *)(registry, definition, create_kernel, NULL));
  CALL(ep_api, RELEASE_KERNEL_DEF, void, void *)(definition);
  CALL(ep_api, RELEASE_KERNEL_DEF_BUILDER, void, void *)(builder);
  return NULL;
}

static Status *create_registry(void **registry) {
  TRY(CALL(ep_api, CREATE_KERNEL_REGISTRY, Status *, void **)(registry));
  for (size_t place = 0; place < sizeof OPERATORS / sizeof *OPERATORS; place++) {
    TRY(add_kernel(*registry, OPERATORS[place], ""));
    TRY(add_kernel(*registry, OPERATORS[place], CONVERTED));
  }
  return NULL;
}

/* The provider of one session. */

static const char *provider_name(const void *self) {
  (void)self;
  return PROVIDER;
}

static Status *is_claimed(const Provider *self, const void *node, bool *claimed) {
  const char *name = "", *domain = "";
  TRY(CALL(api, NODE_GET_NAME, Status *, const void *, const char **)(node, &name));
  TRY(CALL(api, NODE_GET_DOMAIN, Status *, const void *, const char **)(node, &domain));
  *claimed = strncmp(name, self->prefix, strlen(self->prefix)) == 0 || strcmp(domain, CONVERTED) == 0;
  return NULL;
}

static Status *claim(Provider *self, const void *const *nodes, size_t count, void *support) {
  for (size_t place = 0; place < count; place++) {
    bool claimed = false;
    TRY(is_claimed(self, nodes[place], &claimed));
    if (claimed) TRY(CALL(ep_api, ADD_SINGLE_NODE, Status *, void *, const void *)(support, nodes[place]));
  }
  return NULL;
}

static Status *get_capability(Provider *self, const void *graph, void *support) {
  size_t count = 0;
  TRY(CALL(api, GRAPH_GET_NUM_NODES, Status *, const void *, size_t *)(graph, &count));
  const void **nodes = calloc(count + 1, sizeof *nodes);
  if (nodes == NULL) return status(FAIL, "out of memory");
  Status *result = CALL(api, GRAPH_GET_NODES, Status *, const void *, const void **, size_t)(graph, nodes, count);
  if (result == NULL) result = claim(self, nodes, count, support);
  free(nodes);
  return result;
}

static Status *get_preferred_data_layout(Provider *self, int *layout) {
  (void)self;
  *layout = NHWC;
  return NULL;
}

static Status *get_kernel_registry(Provider *self, const void **registry) {
  *registry = self->registry;
  return NULL;
}

/* The factory. */

static const char *vendor(const void *self) {
  (void)self;
  return "relayout";
}

static uint32_t vendor_id(const void *self) {
  (void)self;
  return 0xFFFF;
}

static const char *version(const void *self) {
  (void)self;
  return "1.0.0";
}

static Status *create_data_transfer(Factory *self, void **made) {
  (void)self;
  *made = NULL; /* it computes where the CPU does */
  return NULL;
}

static bool is_stream_aware(const Factory *self) {
  (void)self;
  return false;
}

static Status *get_supported_devices(Factory *self, const void *const *devices, size_t count, void **found, size_t room,
                                     size_t *found_count) {
  *found_count = 0;
  for (size_t place = 0; place < count && *found_count < room && *found_count < 1; place++) {
    if (CALL(api, HARDWARE_DEVICE_TYPE, int, const void *)(devices[place]) != CPU) continue;
    TRY(CALL(ep_api, CREATE_EP_DEVICE, Status *, void *, const void *, const void *, const void *, void **)(
        self, devices[place], NULL, NULL, &found[*found_count]));
    ++*found_count;
  }
  return NULL;
}

static void release_provider(Factory *self, Provider *provider) {
  (void)self;
  if (provider == NULL) return;
  if (provider->registry != NULL) CALL(ep_api, RELEASE_KERNEL_REGISTRY, void, void *)(provider->registry);
  free(provider);
}

static Status *create_provider(Factory *self, const void *const *devices, const void *const *metadata, size_t count,
                               const void *options, const void *logger, Provider **made) {
  (void)devices, (void)metadata, (void)count, (void)logger;
  Provider *provider = calloc(1, sizeof *provider);
  if (provider == NULL) return status(FAIL, "out of memory");
  provider->table[0].version = VERSION;
  provider->table[EP_GET_NAME].call = provider_name;
  provider->table[EP_GET_CAPABILITY].call = get_capability;
  provider->table[EP_GET_PREFERRED_DATA_LAYOUT].call = get_preferred_data_layout;
  provider->table[EP_GET_KERNEL_REGISTRY].call = get_kernel_registry;
  size_t room = sizeof provider->prefix;
  Status *result = CALL(api, GET_SESSION_CONFIG_ENTRY, Status *, const void *, const char *, char *, size_t *)(
      options, PREFIX_OPTION, provider->prefix, &room);
  if (result == NULL) result = create_registry(&provider->registry);
  if (result == NULL)
    *made = provider;
  else
    release_provider(self, provider);
  return result;
}

/* What ONNX Runtime looks for in the library. */

__attribute__((visibility("default"))) Status *CreateEpFactories(const char *name, const void *const *api_base,
                                                                 const void *logger, Factory **factories, size_t room,
                                                                 size_t *count) {
  (void)name, (void)logger;
  api = ((const Table *(*)(uint32_t))api_base[0])(VERSION);
  if (api == NULL || room < 1) {
    *count = 0; /* an ONNX Runtime before 1.24: there is no table from which an error could be made */
    return NULL;
  }
  ep_api = CALL(api, GET_EP_API, const Table *, void)();
  Factory *factory = calloc(1, sizeof *factory);
  if (factory == NULL) return status(FAIL, "out of memory");
  factory->table[0].version = VERSION;
  factory->table[FACTORY_GET_NAME].call = provider_name;
  factory->table[FACTORY_GET_VENDOR].call = vendor;
  factory->table[FACTORY_GET_SUPPORTED_DEVICES].call = get_supported_devices;
  factory->table[FACTORY_CREATE_EP].call = create_provider;
  factory->table[FACTORY_RELEASE_EP].call = release_provider;
  factory->table[FACTORY_GET_VENDOR_ID].call = vendor_id;
  factory->table[FACTORY_GET_VERSION].call = version;
  factory->table[FACTORY_CREATE_DATA_TRANSFER].call = create_data_transfer;
  factory->table[FACTORY_IS_STREAM_AWARE].call = is_stream_aware;
  factories[0] = factory;
  *count = 1;
  return NULL;
}

__attribute__((visibility("default"))) Status *ReleaseEpFactory(Factory *factory) {
  free(factory);
  return NULL;
}

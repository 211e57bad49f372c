/* Setting up, the first time:
 *
 *   1. The first process takes kept memory of these processes, or creates new one, and broadcasts
 *      its name; the others take the same from what they have kept, or map it.
 *   2. All of them tell whether they could. If one has not kept it, it is made anew; if one cannot
 *      map new memory, it is made once more, and then the library does the calls that need it.
 *
 * A process keeps memory when its communicator was freed and all its calls have ended: so it has
 * received all that was sent to it. If all processes have kept it, nothing is on its way there. */
#include "shim/coll/node_memory.h"
#include "base/log.h"
#include "base/stats.h"
#include "exchange/rest.h"
#include "shim/coll/comm_agree.h"
#include "shim/comm/peer_agree.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    KEPT = 16,       /* of each kind */
    RINGS_KEPT = 16, /* times what rests: bytes of rings */
    FILES_SHARE = 4, /* of the process's open files may be for messages that wait */
    FILES_MOST = 1024
};

typedef struct kept {
    struct kept *next;
    tempi_connection what;
    tempi_shared_name name;
    int size;
    int *members;
    tempi_segment segment;
    tempi_ring_end *to, *from;
    uint64_t calls;
    tempi_post_box *posts;
    uint64_t posted, channels;
} kept;

static struct {
    tempi_lock lock;
    kept *first; /* the newest */
    int posts;   /* open files, of kept memory and other */
} pool;

/* ---- kept memory ----------------------------------------------------------------------------- */

static void close_rings(tempi_segment *segment, tempi_ring_end **to)
{
    tempi_segment_close(segment);
    free(*to);
    *to = NULL;
}

static void close_posts(tempi_post_box **posts)
{
    if (*posts)
        __atomic_fetch_sub(&pool.posts, 1, __ATOMIC_RELAXED);
    tempi_post_close(*posts);
    *posts = NULL;
}

static void drop(kept *memory)
{
    if (!memory)
        return;
    close_rings(&memory->segment, &memory->to);
    close_posts(&memory->posts);
    free(memory->members);
    free(memory);
}

/* Unlinks the newest one that fits; NULL: there is none. `name`: NULL for any. */
static kept *take(tempi_connection what, const tempi_node_comm *node, const char *name)
{
    kept *found = NULL;
    tempi_lock_acquire(&pool.lock);
    for (kept **at = &pool.first; *at; at = &(*at)->next)
        if ((*at)->what == what && (*at)->size == node->size &&
            (!name || strcmp((*at)->name.text, name) == 0) &&
            memcmp((*at)->members, node->members, (size_t)node->size * sizeof *node->members) ==
                0) {
            found = *at;
            *at = found->next;
            break;
        }
    tempi_lock_release(&pool.lock);
    return found;
}

/* Unlinks the oldest of that kind, if there are too many. */
static kept *excess(tempi_connection what, int most)
{
    int n = 0;
    int64_t bytes = 0;
    kept **last = NULL;
    for (kept **at = &pool.first; *at; at = &(*at)->next)
        if ((*at)->what == what) {
            ++n;
            bytes += (*at)->segment.bytes;
            last = at;
        }
    if (n <= most && bytes <= RINGS_KEPT * tempi_rest_bytes())
        return NULL;
    kept *old = *last;
    *last = old->next;
    return old;
}

static void trim(tempi_connection what, int most)
{
    kept *old;
    do {
        tempi_lock_acquire(&pool.lock);
        old = excess(what, most);
        tempi_lock_release(&pool.lock);
        drop(old);
    } while (old);
}

/* False: no memory for the record. */
static bool keep(const tempi_node_comm *node, tempi_connection what)
{
    const size_t bytes = (size_t)node->size * sizeof *node->members;
    kept *made = node->members ? calloc(1, sizeof *made) : NULL;
    if (!made || !(made->members = malloc(bytes))) {
        free(made);
        return false;
    }
    memcpy(made->members, node->members, bytes);
    made->what = what;
    made->size = node->size;
    if (what == TEMPI_CONNECT_RINGS) {
        made->name = node->rings_name;
        made->segment = node->segment;
        made->to = node->to;
        made->from = node->from;
        made->calls = node->calls;
    } else {
        made->name = node->posts_name;
        made->posts = node->posts;
        made->posted = node->posted;
        made->channels = node->channels;
    }
    tempi_lock_acquire(&pool.lock);
    made->next = pool.first;
    pool.first = made;
    tempi_lock_release(&pool.lock);
    return true;
}

static void use(tempi_node_comm *node, kept *memory)
{
    if (memory->what == TEMPI_CONNECT_RINGS) {
        node->rings_name = memory->name;
        node->segment = memory->segment;
        node->to = memory->to;
        node->from = memory->from;
        node->calls = memory->calls;
    } else {
        node->posts_name = memory->name;
        node->posts = memory->posts;
        node->posted = memory->posted;
        node->channels = memory->channels;
    }
    free(memory->members);
    free(memory);
}

void tempi_node_memory_clear(void)
{
    trim(TEMPI_CONNECT_RINGS, 0);
    trim(TEMPI_CONNECT_POSTS, 0);
}

void tempi_node_memory_close(tempi_node_comm *node, bool keeps)
{
    if (node->to && !(keeps && keep(node, TEMPI_CONNECT_RINGS)))
        close_rings(&node->segment, &node->to);
    if (node->posts) {
        tempi_post_give_back(node->posts);
        if (!(keeps && keep(node, TEMPI_CONNECT_POSTS)))
            close_posts(&node->posts);
    }
    free(node->members);
    node->members = NULL;
    node->to = node->from = NULL;
    node->posts = NULL;
    memset(&node->segment, 0, sizeof node->segment);
    trim(TEMPI_CONNECT_RINGS, KEPT);
    trim(TEMPI_CONNECT_POSTS, KEPT);
}

/* ---- new memory ------------------------------------------------------------------------------ */

static bool take_ends(tempi_node_comm *node)
{
    const size_t n = (size_t)node->size;
    node->to = calloc(2 * n, sizeof *node->to);
    node->from = node->to ? node->to + n : NULL;
    return node->to != NULL;
}

static void connect(tempi_node_comm *node)
{
    for (int i = 0; i < node->size; ++i) {
        tempi_segment_end(&node->segment, node->rank, i, &node->to[i]);
        tempi_segment_end(&node->segment, i, node->rank, &node->from[i]);
        if (i < node->rank)
            node->to[i].leader = &node->from[i].ring->lead;
        if (i != node->rank)
            __atomic_store_n(&node->from[i].ring->access,
                             tempi_single_copy_access(tempi_segment_probe(&node->segment, i)),
                             __ATOMIC_RELAXED);
    }
}

/* `again`: others could not open it, perhaps as they are in other containers. */
static void create(tempi_node_comm *node, tempi_connection what, bool again,
                   tempi_shared_name *name)
{
    if (what == TEMPI_CONNECT_RINGS)
        node->segment = tempi_segment_create(TEMPI_SEGMENT_FOLDER, node->size, name->text);
    else if (!tempi_post_create(again ? TEMPI_SEGMENT_FOLDER : NULL, node->size, name->text))
        name->text[0] = 0;
}

/* Whether the process can spare one more open file. */
static bool spares_file(void)
{
    struct rlimit limit;
    const int posts = __atomic_load_n(&pool.posts, __ATOMIC_RELAXED);
    return posts < FILES_MOST && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           (rlim_t)posts < limit.rlim_cur / FILES_SHARE;
}

static bool open_posts(tempi_node_comm *node, const char *name)
{
    if (spares_file())
        node->posts = tempi_post_open(TEMPI_SEGMENT_FOLDER, node->size, node->rank, name);
    if (node->posts)
        __atomic_fetch_add(&pool.posts, 1, __ATOMIC_RELAXED);
    return node->posts != NULL;
}

static bool open_rings(tempi_node_comm *node, const char *name)
{
    const bool ready = take_ends(node);
    if (node->rank != 0)
        node->segment = tempi_segment_open(TEMPI_SEGMENT_FOLDER, node->size, name);
    if (ready && node->segment.memory)
        tempi_single_copy_offer(tempi_segment_probe(&node->segment, node->rank));
    return ready && node->segment.memory;
}

/* The file stays for those that have opened it. */
static bool open_new(MPI_Comm comm, tempi_node_comm *node, tempi_connection what,
                     const tempi_shared_name *name)
{
    const bool rings = what == TEMPI_CONNECT_RINGS;
    const bool mine = rings ? open_rings(node, name->text) : open_posts(node, name->text);
    const bool all = tempi_comm_all(comm, node, mine);
    if (node->rank == 0 && name->text[0])
        tempi_segment_unlink(TEMPI_SEGMENT_FOLDER, name->text);
    *(rings ? &node->rings_name : &node->posts_name) = *name;
    if (all && rings)
        connect(node);
    else if (all)
        tempi_post_connect(node->posts);
    else if (rings)
        close_rings(&node->segment, &node->to);
    else
        close_posts(&node->posts);
    return all;
}

/* ---- setting up ------------------------------------------------------------------------------ */

/* Whether all processes have kept the memory of that name; then they use it. */
static bool use_kept(MPI_Comm comm, tempi_node_comm *node, tempi_connection what, kept *mine,
                     const tempi_shared_name *name)
{
    if (node->rank != 0)
        mine = node->members ? take(what, node, name->text) : NULL;
    const bool all = tempi_comm_all(comm, node, mine != NULL);
    if (all)
        use(node, mine);
    else
        drop(mine);
    return all;
}

/* Takes kept memory, or creates new one. */
static kept *begin(tempi_node_comm *node, tempi_connection what, bool anew, bool again,
                   tempi_shared_name *name)
{
    kept *mine = anew || !node->members ? NULL : take(what, node, NULL);
    if (mine) {
        *name = mine->name;
        name->kept = true;
    } else {
        create(node, what, again, name);
    }
    return mine;
}

static bool set_up(MPI_Comm comm, tempi_node_comm *node, tempi_connection what)
{
    if (!node->members && (node->members = malloc((size_t)node->size * sizeof *node->members)) &&
        !tempi_peer_members(comm, node->size, node->peers_begin > 0, node->members)) {
        free(node->members);
        node->members = NULL;
    }
    bool last = false; /* attempt: what was kept is gone */
    for (bool anew = false;; anew = true) {
        tempi_shared_name name = {.kept = false};
        kept *mine = node->rank == 0 ? begin(node, what, anew, last, &name) : NULL;
        if (!tempi_comm_broadcast(comm, node, (char *)&name, sizeof name)) {
            drop(mine);
            return false;
        }
        if (name.kept ? use_kept(comm, node, what, mine, &name) : open_new(comm, node, what, &name))
            return true;
        if (name.kept)
            continue;
        if (last)
            return false;
        tempi_node_memory_clear(); /* it may take the memory, or files, that there are */
        if (!tempi_comm_all(comm, node, true)) /* when all have done so */
            return false;
        last = true;
    }
}

static void warn(const tempi_node_comm *node, tempi_connection what)
{
    tempi_stat_add(TEMPI_STAT_refused_shared_memory, 1);
    if (node->rank == 0 && what == TEMPI_CONNECT_RINGS)
        TEMPI_WARN_ONCE("no shared memory for a communicator of %d ranks: its collectives are left "
                        "to the library (is %s full?)",
                        node->size, TEMPI_SEGMENT_FOLDER);
    else if (node->rank == 0)
        TEMPI_WARN_ONCE("no shared memory for the nonblocking and persistent collectives of a "
                        "communicator of %d ranks: they are left to the library (many open "
                        "files, or is %s full?)",
                        node->size, TEMPI_SEGMENT_FOLDER);
}

bool tempi_node_memory_connect(MPI_Comm comm, tempi_node_comm *node, tempi_connection what)
{
    const bool done = set_up(comm, node, what);
    if (!done)
        warn(node, what);
    return done;
}

/* Messages between the processes of one node that wait in shared memory until they are read, for
 * nonblocking exchanges: the sender never waits for the receiver, nor the receiver for later calls
 * of the sender, which may even have ended.
 *
 * One file for a group of processes. Each has a region of it, of which it allocates what it needs:
 *
 *   region   | heads, one for each receiver | messages and their bytes, in slabs ... |
 *
 * The messages to one receiver are a list: the sender appends, the receiver reads one after the
 * other and says how far it has come. What was taken is used again, by sizes.
 *
 * A long message may offer its blocks instead (offer.h): the receiver reads them from the sender's
 * memory. Until it does the sender may withdraw the offer and pack them, so that it still need not
 * wait; and it must pack what the receiver cannot read. Or the receiver tells where one is to lie,
 * and the sender stores it there; until it does the receiver may read it all the same. Blocks in
 * device memory are offered by a description that only the callers understand.
 *
 * One that needs more memory than the messages for one receiver are to have is sent in parts, each
 * with a message of its own, of which the caller sends the later ones as the receiver reads. So is
 * one that the receiver is to unpack while the sender still packs. */
#ifndef TEMPI_EXCHANGE_POST_BOX_H
#define TEMPI_EXCHANGE_POST_BOX_H

#include "exchange/copy_choice.h"
#include "exchange/offer.h"
#include "exchange/offer_pause.h"
#include "exchange/post.h"
#include "exchange/segment.h"

typedef struct tempi_post_box tempi_post_box;

/* Makes the file for so many processes: one of them does, and removes it by tempi_segment_unlink
 * when all have opened it, or one could not. `folder`: see tempi_segment_make_file. False: it could
 * not. */
bool tempi_post_create(const char *folder, int members, char name[TEMPI_SEGMENT_NAME]);
/* Opens it, as process number `own`, whose first messages then have memory. NULL: it could not. */
tempi_post_box *tempi_post_open(const char *folder, int members, int own, const char *name);
/* When all have opened it: finds whose memory this process can read, and tells them. Until a store
 * fails it takes for granted that it can store there, too. */
void tempi_post_connect(tempi_post_box *box);
/* Gives back the pages of what is not in use. */
void tempi_post_give_back(tempi_post_box *box);
/* Messages that others have not read stay readable for them. */
void tempi_post_close(tempi_post_box *box);

/* ---- sending --------------------------------------------------------------------------------- */

/* How that process can get at the memory of this one: TEMPI_ACCESS_*. */
unsigned tempi_post_access(tempi_post_box *box, int to);
/* A message to that process: sets aside memory for its bytes, which begin at *data, and says how to
 * pack them (`way`). NULL: there is none; the message that says so needs none (bytes < 0). `offer`:
 * all of its bytes, or NULL: they must be packed. If it was taken, *data is NULL, and the message
 * is watched: the bytes must stay until it is over. Else the message has the first `part` of them,
 * or all. */
tempi_post *tempi_post_new(tempi_post_box *box, int to, int64_t bytes, const tempi_offer *offer,
                           int64_t part, bool streamed, void **data);
/* The bytes of a part, but for the last one, of a message for that process: all, if it need not be
 * divided. `streamed`: the receiver packs nothing meanwhile that takes as long. */
int64_t tempi_post_part(tempi_post_box *box, int to, int64_t bytes, bool streamed);
/* Messages up to so many bytes are never divided. */
int64_t tempi_post_whole_most(void);
/* Whether what was offered to that process, and is withdrawn, should be packed with non-temporal
 * stores. */
bool tempi_post_packs_nontemporal(tempi_post_box *box, int to, const tempi_post *post);
/* Whether the messages for that process may have so much more memory. */
bool tempi_post_has_room(tempi_post_box *box, int to, int64_t bytes);
/* How many long messages that process has read: those whose memory was taken back. */
uint64_t tempi_post_released(const tempi_post_box *box, int to);
/* A later part, of so many bytes from that offset on; `reused`: in memory that was read last. NULL:
 * there is no memory. */
tempi_post *tempi_post_new_part(tempi_post_box *box, int to, int64_t offset, int64_t bytes,
                                int64_t whole, bool reused, void **data);
/* The same for blocks of a device that are described by these n bytes, to be withdrawn after so
 * many seconds. It is watched. */
tempi_post *tempi_post_new_described(tempi_post_box *box, int to, int64_t bytes,
                                     const void *bytes_of, int64_t n, double patience);
/* In the call that has just sent, blocks of this process to itself took so many seconds. */
void tempi_post_took_own(tempi_post_box *box, double seconds);
/* Those for that process. */
tempi_offer_pause *tempi_post_pause(tempi_post_box *box, int to);
/* Sends the one that was just made. */
void tempi_post_send(tempi_post_box *box, int to);

/* True: the first so many of its bytes are to be packed at *data now, and tempi_post_withdrawn
 * called. False: the receiver reads them, or has read them, or there is no memory; if that was
 * refused, the message has become one that says so. */
bool tempi_post_withdraw(tempi_post_box *box, int to, tempi_post *post, int64_t bytes, void **data);

/* Stores what it offers of these blocks, if the receiver has told where. False: it has not, or it
 * could not be stored and is offered again. */
bool tempi_post_store(tempi_post_box *box, int to, tempi_post *post, const tempi_op *blocks);

/* ---- receiving ------------------------------------------------------------------------------- */

/* The next message from that process, in their order; NULL: there is none yet. */
tempi_post *tempi_post_next(tempi_post_box *box, int from);
/* Goes on to the one after it, which is then the next. It stays readable until it is taken. */
void tempi_post_pass(tempi_post_box *box, int from);
/* Once it is claimed. NULL: it could not be mapped. */
const void *tempi_post_description(tempi_post_box *box, int from, const tempi_post *post,
                                   int64_t *n);
/* Tells the sender of what is offered where to store it, if it would rather do so. False: it is to
 * be read. Until it is in its place, or tempi_post_uninvite was called, the sender may write to the
 * block. */
bool tempi_post_invite_to(tempi_post_box *box, int from, tempi_post *post, const tempi_op *blocks,
                          int64_t n);
/* Reads what is offered into the blocks; if that fails it refuses it. */
bool tempi_post_read(tempi_post_box *box, int from, tempi_post *post, const tempi_op *blocks,
                     int64_t n);
/* Its packed bytes; NULL: they could not be mapped. */
const void *tempi_post_data(tempi_post_box *box, int from, const tempi_post *post);
/* Once it was passed, and its bytes were read: the sender may use the memory again. */
void tempi_post_take(tempi_post_box *box, int from, tempi_post *post);

#endif

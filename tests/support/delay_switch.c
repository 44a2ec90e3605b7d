// A switch that delays frames, since many kernels lack netem: a program between the ports of a lab of hosts.
//
//     delay_switch PORT...        names of interfaces; it forwards frames between them until its input ends
//
// A line of input, "INDEX DELAY_US GROUP CONNECTED", changes a port, and is answered with "ok", as is the start. Its
// user waits for each answer, so the input never holds a second line. A frame is delayed by the sum of the delays of
// both its ports, and stays within a group. A port that is not connected, as all are at first, loses all frames, while
// its carrier stays.
//
// Sockets carry virtio's header before each frame: senders then leave segmentation and checksums to the receiver.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum {
  kMaxPorts = 32,
  kMaxAddresses = 256,
  kMaxFrameBytes = 1 << 17,
  kMaxQueuedBytes = 1 << 28,  // a delay of 50 ms at 40 Gbit/s
  kSocketBytes = 1 << 24,
  kFramesPerTurn = 64,
};

struct frame {
  struct frame *next;
  int64_t due_ns;
  size_t size_bytes;  // virtio's header included
  unsigned char bytes[];
};

struct queue {
  struct frame *first, *last;
};

struct port {
  int socket;
  int64_t delay_ns;
  int group;
  int connected;
};

struct address {
  unsigned char octets[ETH_ALEN];
  int port;
};

static struct port ports[kMaxPorts];
static struct queue queues[kMaxPorts][kMaxPorts];  // from, to: the frames of a queue are due in order
static struct address addresses[kMaxAddresses];
static int port_count, address_count;
static size_t queued_bytes;

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int open_port(const char *name) {
  int const on = 1, size = kSocketBytes;
  int const opened = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
  int const interface = (int)if_nametoindex(name);
  struct sockaddr_ll place = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = interface};
  struct packet_mreq promiscuous = {.mr_ifindex = interface, .mr_type = PACKET_MR_PROMISC};
  if (opened < 0 || interface == 0 || setsockopt(opened, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0 ||
      setsockopt(opened, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
      setsockopt(opened, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) != 0 ||
      bind(opened, (struct sockaddr *)&place, sizeof place) != 0) {
    perror(name);
    exit(1);
  }
  // A plain user may be refused these sizes; the default ones then lose more frames under load.
  setsockopt(opened, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
  setsockopt(opened, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
  return opened;
}

static void change_port(void) {
  char line[128];
  int index, group, connected;
  long long delay_us;
  if (!fgets(line, sizeof line, stdin)) exit(0);
  if (sscanf(line, "%d %lld %d %d", &index, &delay_us, &group, &connected) != 4 || index < 0 || index >= port_count) {
    fprintf(stderr, "no port is changed by: %s", line);
    exit(1);
  }
  ports[index] = (struct port){ports[index].socket, delay_us * 1000, group, connected};
  puts("ok");
}

static int can_pass(int from, int to) {
  return from != to && ports[from].connected && ports[to].connected && ports[from].group == ports[to].group;
}

static void enqueue(int from, int to, const unsigned char *bytes, size_t size_bytes, int64_t arrived_ns) {
  if (!can_pass(from, to) || queued_bytes + size_bytes > kMaxQueuedBytes) return;
  struct frame *frame = malloc(sizeof *frame + size_bytes);
  if (!frame) return;
  struct queue *queue = &queues[from][to];
  *frame = (struct frame){NULL, arrived_ns + ports[from].delay_ns + ports[to].delay_ns, size_bytes};
  memcpy(frame->bytes, bytes, size_bytes);
  if (queue->last && queue->last->due_ns > frame->due_ns) frame->due_ns = queue->last->due_ns;  // a delay has shrunk
  if (queue->last) queue->last->next = frame;
  else queue->first = frame;
  queue->last = frame;
  queued_bytes += size_bytes;
}

// Returns the port at which the destination was seen, or -1; learns that of the source.
static int look_up(const struct ether_header *header, int from) {
  int known = 0, found = -1;
  for (int i = 0; i < address_count; ++i) {
    if (memcmp(addresses[i].octets, header->ether_dhost, ETH_ALEN) == 0) found = addresses[i].port;
    if (memcmp(addresses[i].octets, header->ether_shost, ETH_ALEN) == 0) addresses[i].port = from, known = 1;
  }
  if (!known && address_count < kMaxAddresses) {
    memcpy(addresses[address_count].octets, header->ether_shost, ETH_ALEN);
    addresses[address_count++].port = from;
  }
  return (header->ether_dhost[0] & 1) ? -1 : found;
}

static void receive(int from) {
  static unsigned char bytes[kMaxFrameBytes];
  for (int i = 0; i < kFramesPerTurn; ++i) {
    ssize_t const size = recv(ports[from].socket, bytes, sizeof bytes, 0);
    if (size < 0) return;  // nothing more; or the interface is down, which clears the error
    if ((size_t)size < sizeof(struct virtio_net_hdr) + sizeof(struct ether_header)) continue;
    int64_t const arrived_ns = now_ns();
    int const to = look_up((const void *)(bytes + sizeof(struct virtio_net_hdr)), from);
    for (int port = 0; port < port_count; ++port) {
      if (to < 0 || to == port) enqueue(from, port, bytes, (size_t)size, arrived_ns);
    }
  }
}

// Sends all frames that are due; returns when the next one is due, or -1.
static int64_t send_due(void) {
  int64_t const now = now_ns();
  int64_t next = -1;
  for (int from = 0; from < port_count; ++from) {
    for (int to = 0; to < port_count; ++to) {
      struct queue *queue = &queues[from][to];
      while (queue->first && queue->first->due_ns <= now) {
        struct frame *frame = queue->first;
        queue->first = frame->next;
        if (!queue->first) queue->last = NULL;
        queued_bytes -= frame->size_bytes;
        // A full socket loses the frame, as the queue of a real port does.
        if (can_pass(from, to)) send(ports[to].socket, frame->bytes, frame->size_bytes, MSG_DONTWAIT);
        free(frame);
      }
      if (queue->first && (next < 0 || queue->first->due_ns < next)) next = queue->first->due_ns;
    }
  }
  return next;
}

int main(int count, char **names) {
  struct pollfd polled[kMaxPorts + 1];
  if (count < 2 || count - 1 > kMaxPorts) return 2;
  prctl(PR_SET_TIMERSLACK, 1000);
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (port_count = 0; port_count < count - 1; ++port_count) {
    ports[port_count] = (struct port){open_port(names[port_count + 1]), 0, 0, 0};
    polled[port_count] = (struct pollfd){ports[port_count].socket, POLLIN, 0};
  }
  polled[port_count] = (struct pollfd){0, POLLIN, 0};
  puts("ok");
  for (;;) {
    int64_t const due_ns = send_due();
    int64_t const now = now_ns();
    int64_t const wait_ns = due_ns > now ? due_ns - now : 0;
    struct timespec const wait = {wait_ns / 1000000000, wait_ns % 1000000000};
    if (ppoll(polled, (nfds_t)port_count + 1, due_ns < 0 ? NULL : &wait, NULL) < 0 && errno != EINTR) return 1;
    for (int port = 0; port < port_count; ++port) {
      if (polled[port].revents) receive(port);
    }
    if (polled[port_count].revents) change_port();
  }
}

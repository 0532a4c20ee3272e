/* A guest book over HTTP, in two parts: the store keeps the entries on its disk, the web server shows them.
 *
 *   guestbook store ADDRESS PORT FILE                         answers with the file; what is posted becomes a line of it
 *   guestbook web ADDRESS PORT STORE_ADDRESS STORE_PORT FILE  shows the title in FILE and what the store has
 *   guestbook get ADDRESS PORT                                prints an answer
 *   guestbook post ADDRESS PORT TEXT                          signs the book
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define LARGEST 65536

static struct sockaddr_in place(const char *address, const char *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port))};
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1) {
        fprintf(stderr, "guestbook: '%s' is no address\n", address);
        exit(2);
    }
    return at;
}

static void be_patient(int connection) {
    struct timeval patience = {.tv_sec = 5};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

static int send_all(int connection, const char *text, size_t length) {
    while (length > 0) {
        ssize_t sent = send(connection, text, length, MSG_NOSIGNAL);
        if (sent <= 0) return -1;
        text += sent;
        length -= (size_t)sent;
    }
    return 0;
}

/* Reads a message up to the end of its body, or of the connection. Gives where the body begins; none if it is too large. */
static char *receive(int connection, char *message) {
    size_t length = 0;
    for (;;) {
        message[length] = 0;
        char *body = strstr(message, "\r\n\r\n");
        char *stated = strcasestr(message, "content-length:");
        if (body && (!stated || stated > body || length >= (size_t)(body + 4 - message) + strtoul(stated + 15, 0, 10)))
            return body + 4;
        if (length == LARGEST) return 0;
        ssize_t got = recv(connection, message + length, LARGEST - length, 0);
        if (got <= 0) return body ? body + 4 : 0;
        length += (size_t)got;
    }
}

static void answer(int connection, const char *status, const char *body) {
    char head[256];
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                          status, strlen(body));
    if (send_all(connection, head, (size_t)length) == 0) send_all(connection, body, strlen(body));
}

/* Asks a guest book. Gives its status, and what it says in `body`. */
static int ask(const struct sockaddr_in *at, const char *method, const char *said, char *body) {
    static char message[LARGEST + 1];
    body[0] = 0;
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    be_patient(connection);
    int status = -1;
    char *end = message + snprintf(message, sizeof message,
                                   "%s / HTTP/1.1\r\nHost: guestbook\r\nContent-Length: %zu\r\n\r\n%s", method,
                                   strlen(said), said);
    if (connect(connection, (const struct sockaddr *)at, sizeof *at) == 0 &&
        send_all(connection, message, (size_t)(end - message)) == 0) {
        char *got = receive(connection, message);
        if (got && sscanf(message, "HTTP/1.%*d %d", &status) == 1) strcpy(body, got);
    }
    close(connection);
    return status;
}

static int read_file(const char *path, char *text) {
    int file = open(path, O_RDONLY);
    ssize_t length = file < 0 ? 0 : read(file, text, LARGEST);
    text[length < 0 ? 0 : length] = 0;
    if (file >= 0) close(file);
    return file;
}

/* What is posted is on the disk before anybody hears that it is. */
static int keep(const char *path, char *said) {
    for (char *letter = said; *letter; letter++)
        if ((unsigned char)*letter < ' ') *letter = ' ';
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (file < 0) return -1;
    int kept = dprintf(file, "%s\n", said) > 0 && fsync(file) == 0;
    close(file);
    return kept ? 0 : -1;
}

static void serve_store(int connection, int posts, char *said, const char *path) {
    static char text[LARGEST + 1];
    if (posts && keep(path, said) != 0) return answer(connection, "507 Insufficient Storage", "not kept\n");
    read_file(path, text);
    answer(connection, "200 OK", text);
}

static void serve_web(int connection, int posts, char *said, const struct sockaddr_in *store, const char *path) {
    static char entries[LARGEST + 1], page[2 * LARGEST + 1], title[LARGEST + 1];
    int status = ask(store, posts ? "POST" : "GET", posts ? said : "", entries);
    if (status != 200) return answer(connection, "503 Service Unavailable", "the store does not answer\n");
    read_file(path, title);
    snprintf(page, sizeof page, "%s%s", title, entries);
    answer(connection, "200 OK", page);
}

int main(int count, char **words) {
    static char message[LARGEST + 1];
    setvbuf(stdout, 0, _IOLBF, 0);
    if (count >= 4 && (!strcmp(words[1], "get") || !strcmp(words[1], "post"))) {
        struct sockaddr_in at = place(words[2], words[3]);
        int posts = count >= 5;
        int status = ask(&at, posts ? "POST" : "GET", posts ? words[4] : "", message);
        printf("%s", message);
        return status == 200 ? 0 : 1;
    }
    int is_store = count == 5 && !strcmp(words[1], "store");
    if (!is_store && !(count == 7 && !strcmp(words[1], "web"))) {
        fprintf(stderr, "guestbook: store ADDRESS PORT FILE, web ADDRESS PORT STORE PORT FILE, get or post ADDRESS PORT\n");
        return 2;
    }
    struct sockaddr_in here = place(words[2], words[3]), store = here;
    if (!is_store) store = place(words[4], words[5]);
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) != 0 || listen(listener, 64) != 0) {
        perror("guestbook: cannot listen");
        return 1;
    }
    printf("%s listens on %s:%s\n", words[1], words[2], words[3]);
    for (;;) {
        int connection = accept(listener, 0, 0);
        if (connection < 0) continue;
        be_patient(connection);
        char *said = receive(connection, message);
        int posts = !strncmp(message, "POST ", 5);
        if (!said) answer(connection, "400 Bad Request", "too large, or not HTTP\n");
        else if (is_store) serve_store(connection, posts, said, words[4]);
        else serve_web(connection, posts, said, &store, words[6]);
        close(connection);
    }
}

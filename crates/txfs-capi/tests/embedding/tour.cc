// The header in C++, with handles that close themselves. tour VOLUME
#include <fcntl.h>

#include <memory>
#include <string>

#include "check.h"

struct Close {
    void operator()(txfs_volume *volume) const { CHECK(txfs_volume_close(volume) == 0); }
    void operator()(txfs_view *view) const { CHECK(txfs_view_close(view) == 0); }
    void operator()(txfs_file *file) const { CHECK(txfs_close(file) == 0); }
};
template <class T> using Owned = std::unique_ptr<T, Close>;

static Owned<txfs_file> open_file(txfs_view *view, const std::string &path, int flags)
{
    txfs_file *file = nullptr;
    CHECK(txfs_open(view, path.c_str(), flags, 0644, &file) == 0);
    return Owned<txfs_file>(file);
}

int main(int, char **arguments)
{
    txfs_open_options options{};
    options.size = sizeof options;
    options.flags = TXFS_OPEN_CREATE;
    txfs_volume *opened = nullptr;
    CHECK(txfs_volume_open(arguments[1], &options, &opened) == 0);
    Owned<txfs_volume> volume(opened);
    for (int round = 0; round < 2; round++) {
        txfs_view *begun = nullptr;
        CHECK(txfs_begin(volume.get(), nullptr, &begun) == 0);
        Owned<txfs_view> tx(begun);
        auto file = open_file(tx.get(), "file", O_RDWR | O_CREAT);
        CHECK(txfs_append(file.get(), "round\n", 6, nullptr) == 6);
        // the first round is dropped without a commit
        if (round == 1)
            CHECK(txfs_commit(tx.get(), TXFS_DURABLE, nullptr) == 0);
    }
    CHECK(txfs_size(open_file(txfs_volume_base(volume.get()), "file", O_RDONLY).get()) == 6);
    puts("tour: all well");
}

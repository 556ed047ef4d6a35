"""The console: the page at `/`, and what only it asks for.

built/     script and style, made from `console/` at the top of the repository by `npm run build`
routes     the files of the page, with headers that let it load nothing and run nothing else; the first
           screen in one answer; and settings, keys by name and files, for keys with the scope admin
attention  what a person should look at: loss, cursors that are about to lose, dead letters, damage
"""

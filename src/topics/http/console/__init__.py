"""The console: the page at `/`, and what only it asks for.

built/     script and style, made from `console/` at the top of the repository by `npm run build`
page       hands them out, with headers that let the page load nothing and run nothing else
overview   the first screen in one answer: the server, what needs attention, a page of topics
system     settings, keys by name and files, for keys with the scope admin
attention  what a person should look at: loss, cursors that are about to lose, dead letters, damage
"""

// A search field behind each link to a table: it leaves the rows that have all words.
for (const link of document.querySelectorAll('p > a[href$=".csv"]:only-child')) {
  const field = document.createElement("input")
  field.type = "search"
  field.placeholder = "Find rows"
  field.setAttribute("aria-label", "Find rows that have these words")
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/)
    for (const row of link.parentElement.nextElementSibling.querySelectorAll("tbody tr")) {
      const text = row.textContent.toLowerCase()
      row.hidden = !words.every(word => text.includes(word))
    }
  })
  link.after(field)
}
